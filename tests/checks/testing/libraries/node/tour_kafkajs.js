// The tour of KafkaJS; python/tour.py describes a tour.
"use strict";
const { Kafka, ConfigResourceTypes, CompressionTypes, logLevel } = require("kafkajs");

const PARTITIONS = { records: 3, transactions: 2, copies: 1 };
const [ROUNDS, ROUND, TRANSACTION_COUNT, COPIED, FIRST] = [5, 20, 9, 25, 50];
const END = "end";
const ENDED = {}; // by group, the partitions whose end was seen; the second reader continues after the first
const RETENTION = ["3600000", "7200000"];

const [bootstrap, name, atEnd] = process.argv.slice(2);
const [RECORDS, TRANSACTIONS, COPIES] = Object.keys(PARTITIONS).map((end) => `${name}-${end}`);
const logCreator = () => ({ label, log }) => console.error(label, log.message, log.error ?? "");
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.WARN, logCreator });
const admin = kafka.admin();

const say = (saw, what = {}) => console.log(JSON.stringify({ saw, ...what }));
const text = (data) => (data === null ? null : data.toString());
const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function until(ready) {
  const deadline = Date.now() + 60000;
  while (!(await ready())) {
    if (Date.now() > deadline) throw new Error("condition not reached in time");
    await sleep(50);
  }
}

async function configured() {
  const asked = { type: ConfigResourceTypes.TOPIC, name: RECORDS, configNames: ["retention.ms"] };
  const described = await admin.describeConfigs({ resources: [asked], includeSynonyms: false });
  return described.resources[0].configEntries[0].configValue;
}

const topics = async () => (await admin.listTopics()).filter((topic) => topic.startsWith(name)).sort();

async function administer() {
  const cluster = await admin.describeCluster();
  say("cluster", { brokers: cluster.brokers.map((broker) => broker.nodeId), controller: cluster.controller });
  const configEntries = [{ name: "retention.ms", value: RETENTION[0] }];
  const created = Object.entries(PARTITIONS).map(([end, numPartitions]) => {
    return { topic: `${name}-${end}`, numPartitions, replicationFactor: 1, configEntries };
  });
  await admin.createTopics({ topics: created });
  await until(async () => (await topics()).length === created.length); // brokers learn of it after the controller
  const described = await admin.fetchTopicMetadata({ topics: await topics() });
  const counts = described.topics.map((topic) => [topic.name, topic.partitions.length]);
  say("topics", { topics: Object.fromEntries(counts) });
  say("configuration", { "retention.ms": await configured() });
  const altered = [{ name: "retention.ms", value: RETENTION[1] }];
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: RECORDS, configEntries: altered }];
  await admin.alterConfigs({ validateOnly: false, resources });
  await until(async () => (await configured()) === RETENTION[1]);
  say("configuration", { "retention.ms": await configured() });
}

// Sends rounds of records, and waits for each round. An answer has one offset, so each record has its own call.
async function produce(kind, rounds, settings = {}, compression = CompressionTypes.None) {
  const producer = kafka.producer(settings);
  await producer.connect();
  for (let first = 0; first < rounds * ROUND; first += ROUND) {
    const sent = [];
    for (let number = first; number < first + ROUND; number++) {
      const [key, value] = [number % 2 ? `key-${number % 3}` : null, `${kind}-${number}`];
      const answer = producer.send({ topic: RECORDS, compression, messages: [{ key, value }] });
      const acknowledged = ([{ partition, baseOffset }]) => {
        say("acknowledged", { kind, key, value, partition, offset: Number(baseOffset) });
      };
      sent.push(answer.then(acknowledged, (error) => say("failed", { kind, value, error: String(error) })));
    }
    await Promise.all(sent);
  }
  await producer.disconnect();
}

async function end(topic) {
  const producer = kafka.producer();
  await producer.connect();
  for (let partition = 0; partition < PARTITIONS[topic.slice(name.length + 1)]; partition++) {
    await producer.send({ topic, messages: [{ value: END, partition }] });
  }
  await producer.disconnect();
}

// A transactional producer, replaced by a new one when it cannot go on.
class Transactions {
  constructor(transactionalId) {
    this.settings = { transactionalId, idempotent: true, maxInFlightRequests: 1 };
    this.producer = null;
  }

  async run(write, commit = true) {
    let committing = false;
    try {
      if (this.producer === null) {
        this.producer = kafka.producer(this.settings);
        await this.producer.connect();
      }
      const transaction = await this.producer.transaction();
      try {
        await write(transaction);
      } catch (error) {
        await transaction.abort();
        throw error;
      }
      committing = commit;
      await (commit ? transaction.commit() : transaction.abort());
      return { outcome: commit ? "committed" : "aborted", error: null };
    } catch (error) {
      await this.close();
      return { outcome: committing ? "unknown" : "aborted", error: String(error) };
    }
  }

  async close() {
    if (this.producer !== null) await this.producer.disconnect();
    this.producer = null;
  }
}

async function transact() {
  const transactions = new Transactions(`${name}-transactions`);
  for (let number = 0; number < TRANSACTION_COUNT; number++) {
    const messages = [0, 1].map((partition) => ({ partition, value: `${number}-${partition}` }));
    const write = (transaction) => transaction.send({ topic: TRANSACTIONS, messages });
    say("transaction", { number, ...(await transactions.run(write, number % 3 !== 2)) });
  }
  await transactions.close();
  await end(TRANSACTIONS);
}

async function reader(group, topic, settings, run) {
  const consumer = kafka.consumer({ groupId: `${name}-${group}`, ...settings });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ eachBatchAutoResolve: false, ...run });
  return consumer;
}

async function groupOffsets(group) {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: `${name}-${group}`, topics: [RECORDS] });
  const there = partitions.filter((row) => Number(row.offset) >= 0);
  return Object.fromEntries(there.map((row) => [row.partition, Number(row.offset)]));
}

const committed = async (group) => {
  say("committed", { group: `${name}-${group}`, offsets: await groupOffsets(group) });
};

// Copies the records, each in a transaction with the offset after it.
async function copy() {
  const transactions = new Transactions(`${name}-copier`);
  const ends = {};
  const reached = async () => {
    const offsets = await groupOffsets("copier");
    return Object.keys(ends).length === PARTITIONS.records && Object.keys(ends).every((p) => offsets[p] === ends[p]);
  };
  while (!(await reached())) {
    let failed = false;
    const eachBatch = async ({ batch: { partition, messages }, resolveOffset, heartbeat }) => {
      for (let first = 0; first < messages.length && !failed; first += COPIED) {
        const batch = messages.slice(first, first + COPIED);
        const behind = Number(batch.at(-1).offset) + 1;
        if (text(batch.at(-1).value) === END) ends[partition] = behind;
        const result = await transactions.run(async (transaction) => {
          const copies = batch.map(({ offset }) => ({ value: `${partition}-${offset}` }));
          await transaction.send({ topic: COPIES, messages: copies });
          const offsets = [{ topic: RECORDS, partitions: [{ partition, offset: String(behind) }] }];
          await transaction.sendOffsets({ consumerGroupId: `${name}-copier`, topics: offsets });
        });
        say("copied", { inputs: batch.map(({ offset }) => [partition, Number(offset)]), ...result });
        failed = result.outcome !== "committed";
        if (!failed) resolveOffset(batch.at(-1).offset);
        await heartbeat();
      }
    };
    const consumer = await reader("copier", RECORDS, {}, { autoCommit: false, eachBatch });
    while (!failed && !(await reached())) await sleep(200);
    await consumer.disconnect();
  }
  await transactions.close();
  await end(COPIES);
}

// Reads until each partition's end, or at most so many records; commits and leaves.
async function consume(called, group, topic, most = 0, settings = {}) {
  const ended = (ENDED[group] ??= new Set());
  let count = 0;
  const isDone = () => ended.size === PARTITIONS[topic.slice(name.length + 1)] || (most > 0 && count === most);
  const eachBatch = async ({ batch: { partition, messages }, resolveOffset }) => {
    for (const { key, value, offset } of messages) {
      if (isDone()) break;
      count++;
      const where = { topic, partition, offset: Number(offset) };
      say("consumed", { reader: called, ...where, key: text(key), value: text(value) });
      if (text(value) === END) ended.add(partition);
      resolveOffset(offset);
    }
  };
  const consumer = await reader(group, topic, settings, { eachBatch });
  while (!isDone()) await sleep(50);
  await consumer.disconnect();
}

// A member of the pair; the caller disconnects it.
async function member(called, told) {
  const consumer = kafka.consumer({ groupId: `${name}-pair` });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    told.partitions = [...(payload.memberAssignment[RECORDS] ?? [])].sort();
    say("assigned", { member: called, partitions: told.partitions });
  });
  await consumer.connect();
  await consumer.subscribe({ topic: RECORDS, fromBeginning: true });
  await consumer.run({ eachMessage: async () => {} });
  return consumer;
}

async function rebalance() {
  const [a, b] = [{ partitions: [] }, { partitions: [] }];
  const first = await member("a", a);
  await until(() => a.partitions.length === 3);
  const second = await member("b", b);
  await until(() => b.partitions.length > 0 && [...a.partitions, ...b.partitions].sort().join() === "0,1,2");
  const [pair] = (await admin.describeGroups([`${name}-pair`])).groups;
  say("group", { group: pair.groupId, state: pair.state, members: pair.members.length });
  await second.disconnect();
  await until(() => a.partitions.length === 3);
  await first.disconnect();
}

async function groups() {
  const listed = (await admin.listGroups()).groups.map((group) => group.groupId);
  return listed.filter((group) => group.startsWith(name)).sort();
}

async function cleanUp() {
  say("groups", { listed: await groups() });
  await admin.deleteGroups(await groups());
  say("deleted groups", { listed: await groups() });
  await admin.deleteTopics({ topics: await topics() });
  await until(async () => (await topics()).length === 0);
  say("deleted topics", { listed: await topics() });
}

async function main() {
  await admin.connect();
  await administer();
  await produce("default", ROUNDS);
  await produce("gzip", 1, {}, CompressionTypes.GZIP);
  await produce("idempotent", ROUNDS, { idempotent: true });
  await end(RECORDS);
  await transact();
  await copy();
  await consume("first", "readers", RECORDS, FIRST);
  await committed("readers");
  await consume("second", "readers", RECORDS);
  await committed("readers");
  await committed("copier");
  await consume("committed", "transactions", TRANSACTIONS);
  await consume("copies", "copies", COPIES);
  await consume("uncommitted", "uncommitted", TRANSACTIONS, 0, { readUncommitted: true });
  await rebalance();
  if (atEnd !== "keep") await cleanUp();
  await admin.disconnect();
  say("end");
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
