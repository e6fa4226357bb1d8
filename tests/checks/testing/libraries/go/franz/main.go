// The tour of franz-go.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	. "kafka-eos.invalid/libraries/tour"
)

var (
	background = context.Background()
	admin      = kadm.NewClient(client())
)

func client(options ...kgo.Opt) *kgo.Client {
	return Got(kgo.NewClient(append(options, kgo.SeedBrokers(Bootstrap))...))
}

func configured() string {
	described := Got(Got(admin.DescribeTopicConfigs(background, RecordsTopic)).On(RecordsTopic, nil))
	for _, config := range described.Configs {
		if config.Key == "retention.ms" {
			return config.MaybeValue()
		}
	}
	return ""
}

func administer() {
	metadata := Got(admin.BrokerMetadata(background))
	Say("cluster", Event{"brokers": metadata.Brokers.NodeIDs(), "controller": metadata.Controller})
	for end, count := range Partitions {
		configs := map[string]*string{"retention.ms": &Retention[0]}
		made := Got(admin.CreateTopic(background, int32(count), 1, configs, Name+"-"+end))
		Must(made.Err)
	}
	counts := map[string]int{}
	Until(func() bool { // brokers learn of it after the controller
		for _, topic := range Got(admin.ListTopics(background, RecordsTopic, TransactionsTopic, CopiesTopic)) {
			counts[topic.Topic] = len(topic.Partitions)
		}
		return counts[RecordsTopic]*counts[TransactionsTopic]*counts[CopiesTopic] > 0
	})
	Say("topics", Event{"topics": counts})
	Say("configuration", Event{"retention.ms": configured()})
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &Retention[1]}}
	for _, altered := range Got(admin.AlterTopicConfigs(background, set, RecordsTopic)) {
		Must(altered.Err)
	}
	Until(func() bool { return configured() == Retention[1] })
	Say("configuration", Event{"retention.ms": configured()})
}

// Sends rounds of records, and waits for each round.
func produce(kind string, rounds int, options ...kgo.Opt) {
	producer := client(options...)
	defer producer.Close()
	for first := 0; first < rounds*Round; first += Round {
		var records []*kgo.Record
		for number := first; number < first+Round; number++ {
			value := fmt.Appendf(nil, "%s-%d", kind, number)
			records = append(records, &kgo.Record{Topic: RecordsTopic, Key: Key(number), Value: value})
		}
		for _, result := range producer.ProduceSync(background, records...) {
			event := Event{"kind": kind, "key": Text(result.Record.Key), "value": string(result.Record.Value)}
			if result.Err != nil {
				event["error"] = result.Err.Error()
				Say("failed", event)
			} else {
				event["partition"], event["offset"] = result.Record.Partition, result.Record.Offset
				Say("acknowledged", event)
			}
		}
	}
}

func end(topic string) {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	for partition := range CountOf(topic) {
		record := &kgo.Record{Topic: topic, Partition: int32(partition), Value: []byte(End)}
		Must(producer.ProduceSync(background, record).FirstErr())
	}
}

func transact() {
	var producer *kgo.Client
	transaction := func(number int) (string, error) {
		if producer == nil {
			manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
			producer = client(kgo.TransactionalID(Name+"-transactions"), manual)
		}
		if err := producer.BeginTransaction(); err != nil {
			return "aborted", err
		}
		var records []*kgo.Record
		for partition := range 2 {
			value := fmt.Appendf(nil, "%d-%d", number, partition)
			records = append(records, &kgo.Record{Topic: TransactionsTopic, Partition: int32(partition), Value: value})
		}
		failed := producer.ProduceSync(background, records...).FirstErr()
		commit := failed == nil && number%3 != 2
		if err := producer.EndTransaction(background, kgo.TransactionEndTry(commit)); err != nil {
			if commit {
				return "unknown", err
			}
			return "aborted", err
		}
		if commit {
			return "committed", nil
		}
		return "aborted", failed
	}
	for number := range Transactions {
		outcome, err := transaction(number)
		Say("transaction", Event{"number": number, "outcome": outcome, "error": Reason(err)})
		if err != nil {
			producer.Close()
			producer = nil
		}
	}
	if producer != nil {
		producer.Close()
	}
	end(TransactionsTopic)
}

func groupOffsets(group string) map[int32]int64 {
	offsets := map[int32]int64{}
	var fetched kadm.OffsetResponses
	Until(func() bool { // its connection may be lost
		var err error
		fetched, err = admin.FetchOffsets(background, Name+"-"+group)
		return err == nil
	})
	fetched.Each(func(row kadm.OffsetResponse) {
		offsets[row.Partition] = row.At
	})
	return offsets
}

func committed(group string) {
	Say("committed", Event{"group": Name + "-" + group, "offsets": groupOffsets(group)})
}

func polled(poll func(context.Context, int) kgo.Fetches, most int) []*kgo.Record {
	quiet, cancel := context.WithTimeout(background, Quiet)
	defer cancel()
	fetches := poll(quiet, most)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			Say("failed", Event{"kind": "poll", "error": failed.Err.Error()})
		}
	}
	return fetches.Records()
}

// Copies the records, each in a transaction with the offset after it.
func copyRecords() {
	ends, reached := map[int32]int64{}, map[int32]int64{}
	var session *kgo.GroupTransactSession
	for !Reached(ends, reached) {
		if session == nil {
			session = Got(kgo.NewGroupTransactSession(
				kgo.SeedBrokers(Bootstrap), kgo.TransactionalID(Name+"-copier"), kgo.ConsumerGroup(Name+"-copier"),
				kgo.ConsumeTopics(RecordsTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
			))
		}
		batch := polled(session.PollRecords, Copied)
		if len(batch) == 0 {
			reached = groupOffsets("copier")
			continue
		}
		inputs := [][]int64{}
		behind := map[int32]int64{}
		failed := session.Begin()
		for _, record := range batch {
			inputs = append(inputs, []int64{int64(record.Partition), record.Offset})
			behind[record.Partition] = record.Offset + 1
			if string(record.Value) == End {
				ends[record.Partition] = record.Offset + 1
			}
			if failed == nil {
				value := fmt.Appendf(nil, "%d-%d", record.Partition, record.Offset)
				session.Produce(background, &kgo.Record{Topic: CopiesTopic, Value: value}, nil)
			}
		}
		outcome := "aborted"
		if failed == nil {
			var done bool
			done, failed = session.End(background, kgo.TryCommit)
			switch {
			case failed != nil:
				outcome = "unknown"
			case done:
				outcome = "committed"
			}
		}
		Say("copied", Event{"inputs": inputs, "outcome": outcome, "error": Reason(failed)})
		switch outcome {
		case "committed":
			for partition, offset := range behind {
				reached[partition] = offset
			}
		case "unknown":
			session.Close()
			session = nil
		}
	}
	if session != nil {
		session.Close()
	}
	end(CopiesTopic)
}

// Reads until each partition's end, or at most so many records; commits and leaves.
func consume(reader, group, topic string, most int, options ...kgo.Opt) {
	consumer := client(append(options, kgo.ConsumerGroup(Name+"-"+group), kgo.ConsumeTopics(topic))...)
	ended := EndedOf(group)
	for count := 0; len(ended) < CountOf(topic) && (most == 0 || count < most); {
		for _, record := range polled(consumer.PollRecords, max(most-count, 0)) {
			count++
			Say("consumed", Event{
				"reader": reader, "topic": record.Topic, "partition": record.Partition, "offset": record.Offset,
				"key": Text(record.Key), "value": Text(record.Value),
			})
			if string(record.Value) == End {
				ended[int(record.Partition)] = true
			}
		}
	}
	Until(func() bool { return consumer.CommitUncommittedOffsets(background) == nil })
	consumer.Close()
}

// A member of the pair; the caller closes it.
func member(called string) (*Member, func()) {
	told := NewMember(called)
	change := func(add bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			now := told.Partitions()
			for _, partition := range changed[RecordsTopic] {
				now = slices.DeleteFunc(now, func(each int) bool { return each == int(partition) })
				if add {
					now = append(now, int(partition))
				}
			}
			told.Assign(now)
		}
	}
	consumer := client(
		kgo.ConsumerGroup(Name+"-pair"), kgo.ConsumeTopics(RecordsTopic),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
	)
	leaves := make(chan struct{})
	left := make(chan struct{})
	go func() {
		defer close(left)
		for {
			select {
			case <-leaves:
				consumer.Close()
				return
			default:
				polled(consumer.PollRecords, 0)
			}
		}
	}()
	return told, func() {
		close(leaves)
		<-left
	}
}

func rebalance() {
	first, leaveFirst := member("a")
	Until(func() bool { return len(first.Partitions()) == 3 })
	second, leaveSecond := member("b")
	Until(func() bool { return Share(first, second) })
	described := Got(Got(admin.DescribeGroups(background, Name+"-pair")).On(Name+"-pair", nil))
	Say("group", Event{"group": described.Group, "state": described.State, "members": len(described.Members)})
	leaveSecond()
	Until(func() bool { return len(first.Partitions()) == 3 })
	leaveFirst()
}

func groups() []string {
	listed := []string{}
	for _, group := range Got(admin.ListGroups(background)).Groups() {
		if strings.HasPrefix(group, Name) {
			listed = append(listed, group)
		}
	}
	slices.Sort(listed)
	return listed
}

func cleanUp() {
	Say("groups", Event{"listed": groups()})
	for _, deleted := range Got(admin.DeleteGroups(background, groups()...)) {
		Must(deleted.Err)
	}
	Say("deleted groups", Event{"listed": groups()})
	for _, deleted := range Got(admin.DeleteTopics(background, RecordsTopic, TransactionsTopic, CopiesTopic)) {
		Must(deleted.Err)
	}
	left := []string{}
	Until(func() bool {
		left = slices.DeleteFunc(Got(admin.ListTopics(background)).Names(), func(topic string) bool {
			return !strings.HasPrefix(topic, Name)
		})
		return len(left) == 0
	})
	Say("deleted topics", Event{"listed": left})
}

func main() {
	administer()
	produce("default", Rounds)
	for codec, option := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		produce(codec, 1, kgo.ProducerBatchCompression(option))
	}
	produce("not idempotent", Rounds, kgo.DisableIdempotentWrite())
	end(RecordsTopic)
	transact()
	copyRecords()
	committedOnly := kgo.FetchIsolationLevel(kgo.ReadCommitted())
	consume("first", "readers", RecordsTopic, First)
	committed("readers")
	consume("second", "readers", RecordsTopic, 0)
	committed("readers")
	committed("copier")
	consume("committed", "transactions", TransactionsTopic, 0, committedOnly)
	consume("copies", "copies", CopiesTopic, 0, committedOnly)
	consume("uncommitted", "uncommitted", TransactionsTopic, 0)
	rebalance()
	if !Keep {
		cleanUp()
	}
	Say("end", nil)
}
