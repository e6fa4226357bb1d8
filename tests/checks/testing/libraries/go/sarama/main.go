// The tour of Sarama.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	. "kafka-eos.invalid/libraries/tour"
)

var (
	background = context.Background()
	admin      = Got(sarama.NewClusterAdmin([]string{Bootstrap}, sarama.NewConfig()))
)

func configured() string {
	resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: RecordsTopic, ConfigNames: []string{"retention.ms"}}
	for _, entry := range Got(admin.DescribeConfig(resource)) {
		if entry.Name == "retention.ms" {
			return entry.Value
		}
	}
	return ""
}

func topics() []string {
	listed := []string{}
	for topic := range Got(admin.ListTopics()) {
		if strings.HasPrefix(topic, Name) {
			listed = append(listed, topic)
		}
	}
	return listed
}

func administer() {
	brokers, controller, err := admin.DescribeCluster()
	Must(err)
	ids := []int32{}
	for _, broker := range brokers {
		ids = append(ids, broker.ID())
	}
	Say("cluster", Event{"brokers": ids, "controller": controller})
	for end, count := range Partitions {
		configs := map[string]*string{"retention.ms": &Retention[0]}
		detail := &sarama.TopicDetail{NumPartitions: int32(count), ReplicationFactor: 1, ConfigEntries: configs}
		Must(admin.CreateTopic(Name+"-"+end, detail, false))
	}
	Until(func() bool { return len(topics()) == len(Partitions) }) // brokers learn of it after the controller
	counts := map[string]int{}
	for _, topic := range Got(admin.DescribeTopics(topics())) {
		counts[topic.Name] = len(topic.Partitions)
	}
	Say("topics", Event{"topics": counts})
	Say("configuration", Event{"retention.ms": configured()})
	entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &Retention[1]}
	entries := map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": entry}
	Must(admin.IncrementalAlterConfig(sarama.TopicResource, RecordsTopic, entries, false))
	Until(func() bool { return configured() == Retention[1] })
	Say("configuration", Event{"retention.ms": configured()})
}

func producerConfig(change func(*sarama.Config)) *sarama.Config {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true // required by the synchronous producer
	change(config)
	return config
}

// The settings that Sarama requires for an idempotent producer.
func idempotent(config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
}

// Sends rounds of records, and waits for each round.
func produce(kind string, rounds int, change func(*sarama.Config)) {
	producer := Got(sarama.NewSyncProducer([]string{Bootstrap}, producerConfig(change)))
	for first := 0; first < rounds*Round; first += Round {
		var messages []*sarama.ProducerMessage
		for number := first; number < first+Round; number++ {
			value := fmt.Sprintf("%s-%d", kind, number)
			message := &sarama.ProducerMessage{Topic: RecordsTopic, Value: sarama.StringEncoder(value), Metadata: number}
			if key := Key(number); key != nil {
				message.Key = sarama.ByteEncoder(key)
			}
			messages = append(messages, message)
		}
		failed := map[any]error{}
		var each sarama.ProducerErrors
		if errors.As(producer.SendMessages(messages), &each) {
			for _, failure := range each {
				failed[failure.Msg.Metadata] = failure.Err
			}
		}
		for _, message := range messages {
			event := Event{"kind": kind, "key": Text(Key(message.Metadata.(int))), "value": message.Value}
			if err := failed[message.Metadata]; err != nil {
				event["error"] = err.Error()
				Say("failed", event)
			} else {
				event["partition"], event["offset"] = message.Partition, message.Offset
				Say("acknowledged", event)
			}
		}
	}
	_ = producer.Close()
}

func manual(config *sarama.Config) {
	config.Producer.Partitioner = sarama.NewManualPartitioner
}

func end(topic string) {
	producer := Got(sarama.NewSyncProducer([]string{Bootstrap}, producerConfig(manual)))
	for partition := range CountOf(topic) {
		message := &sarama.ProducerMessage{Topic: topic, Partition: int32(partition), Value: sarama.StringEncoder(End)}
		_, _, err := producer.SendMessage(message)
		Must(err)
	}
	Must(producer.Close())
}

// A transactional producer, replaced by a new one when it cannot go on.
type transactional struct {
	id       string
	producer sarama.SyncProducer
}

func (t *transactional) run(write func(sarama.SyncProducer) error, commit bool) (string, error) {
	committing := false
	err := func() (err error) {
		if t.producer == nil {
			t.producer, err = sarama.NewSyncProducer([]string{Bootstrap}, producerConfig(func(config *sarama.Config) {
				idempotent(config)
				manual(config)
				config.Producer.Transaction.ID = t.id
			}))
			if err != nil {
				t.producer = nil
				return err
			}
		}
		if err = t.producer.BeginTxn(); err != nil {
			return err
		}
		if err = write(t.producer); err != nil {
			return err
		}
		committing = commit
		if commit {
			return t.producer.CommitTxn()
		}
		return t.producer.AbortTxn()
	}()
	if err == nil {
		return map[bool]string{true: "committed", false: "aborted"}[commit], nil
	}
	t.close()
	return map[bool]string{true: "unknown", false: "aborted"}[committing], err
}

func (t *transactional) close() {
	if t.producer != nil {
		_ = t.producer.Close()
	}
	t.producer = nil
}

func transact() {
	transactions := &transactional{id: Name + "-transactions"}
	for number := range Transactions {
		outcome, err := transactions.run(func(producer sarama.SyncProducer) error {
			var messages []*sarama.ProducerMessage
			for partition := range 2 {
				value := sarama.StringEncoder(fmt.Sprintf("%d-%d", number, partition))
				messages = append(messages,
					&sarama.ProducerMessage{Topic: TransactionsTopic, Partition: int32(partition), Value: value})
			}
			return producer.SendMessages(messages)
		}, number%3 != 2)
		Say("transaction", Event{"number": number, "outcome": outcome, "error": Reason(err)})
	}
	transactions.close()
	end(TransactionsTopic)
}

// A handler of claims, with an optional callback for new assignments.
type handler struct {
	assigned func(map[string][]int32)
	claimed  func(sarama.ConsumerGroupSession, sarama.ConsumerGroupClaim) error
}

func (h handler) Setup(session sarama.ConsumerGroupSession) error {
	if h.assigned != nil {
		h.assigned(session.Claims())
	}
	return nil
}

func (h handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	return h.claimed(session, claim)
}

// Takes part in a group until told to leave.
func join(ctx context.Context, group, topic string, change func(*sarama.Config), what handler) {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	change(config)
	var member sarama.ConsumerGroup
	var err error
	Until(func() bool {
		member, err = sarama.NewConsumerGroup([]string{Bootstrap}, Name+"-"+group, config)
		return err == nil
	})
	for ctx.Err() == nil {
		if err := member.Consume(ctx, []string{topic}, what); err != nil && ctx.Err() == nil {
			Say("failed", Event{"kind": "consume", "error": err.Error()})
			time.Sleep(Quiet)
		}
	}
	if err := member.Close(); err != nil {
		Say("failed", Event{"kind": "close", "error": err.Error()})
	}
}

func unchanged(*sarama.Config) {}

func committedOnly(config *sarama.Config) {
	config.Consumer.IsolationLevel = sarama.ReadCommitted
}

// Reads until each partition's end, or at most so many records; commits and leaves.
func consume(reader, group, topic string, most int, change func(*sarama.Config)) {
	ctx, leave := context.WithCancel(background)
	var lock sync.Mutex
	ended := EndedOf(group)
	count := 0
	claimed := func(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
		for message := range claim.Messages() {
			lock.Lock()
			if ctx.Err() == nil {
				count++
				session.MarkMessage(message, "")
				Say("consumed", Event{
					"reader": reader, "topic": message.Topic, "partition": message.Partition, "offset": message.Offset,
					"key": Text(message.Key), "value": Text(message.Value),
				})
				if string(message.Value) == End {
					ended[int(message.Partition)] = true
				}
				if len(ended) == CountOf(topic) || count == most {
					session.Commit()
					leave()
				}
			}
			lock.Unlock()
		}
		return nil
	}
	join(ctx, group, topic, change, handler{claimed: claimed})
}

func groupOffsets(group string) map[int32]int64 {
	var fetched *sarama.OffsetFetchResponse
	Until(func() bool { // its connection may be lost
		var err error
		fetched, err = admin.ListConsumerGroupOffsets(Name+"-"+group, map[string][]int32{RecordsTopic: {0, 1, 2}})
		return err == nil
	})
	offsets := map[int32]int64{}
	for partition, row := range fetched.Blocks[RecordsTopic] {
		if row.Offset >= 0 {
			offsets[partition] = row.Offset
		}
	}
	return offsets
}

func committed(group string) {
	Say("committed", Event{"group": Name + "-" + group, "offsets": groupOffsets(group)})
}

// Returns the next records of a claim; none when the session has ended.
func taken(claim sarama.ConsumerGroupClaim) []*sarama.ConsumerMessage {
	var batch []*sarama.ConsumerMessage
	quiet := time.After(Quiet)
	for len(batch) < Copied {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			batch = append(batch, message)
		case <-quiet:
			return batch
		}
	}
	return batch
}

// Copies the records, each in a transaction with the offset after it.
func copyRecords() {
	transactions := &transactional{id: Name + "-copier"}
	ends := map[int32]int64{}
	var lock sync.Mutex
	reached := map[int32]int64{}
	for !Reached(ends, reached) {
		ctx, leave := context.WithCancel(background)
		claimed := func(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
			for ctx.Err() == nil && session.Context().Err() == nil {
				batch := taken(claim)
				if len(batch) == 0 {
					lock.Lock()
					if reached = groupOffsets("copier"); Reached(ends, reached) {
						leave()
					}
					lock.Unlock()
					continue
				}
				lock.Lock()
				if ctx.Err() != nil {
					lock.Unlock()
					return nil
				}
				inputs := [][]int64{}
				for _, message := range batch {
					inputs = append(inputs, []int64{int64(message.Partition), message.Offset})
					if string(message.Value) == End {
						ends[message.Partition] = message.Offset + 1
					}
				}
				behind := batch[len(batch)-1].Offset + 1
				outcome, err := transactions.run(func(producer sarama.SyncProducer) error {
					var messages []*sarama.ProducerMessage
					for _, message := range batch {
						value := sarama.StringEncoder(fmt.Sprintf("%d-%d", message.Partition, message.Offset))
						messages = append(messages, &sarama.ProducerMessage{Topic: CopiesTopic, Value: value})
					}
					if err := producer.SendMessages(messages); err != nil {
						return err
					}
					offset := &sarama.PartitionOffsetMetadata{Partition: claim.Partition(), Offset: behind, LeaderEpoch: -1}
					offsets := map[string][]*sarama.PartitionOffsetMetadata{RecordsTopic: {offset}}
					metadata := sarama.NewConsumerGroupMetadataFromSession(session, Name+"-copier", nil)
					return producer.AddOffsetsToTxnWithGroupMetadata(offsets, metadata)
				}, true)
				Say("copied", Event{"inputs": inputs, "outcome": outcome, "error": Reason(err)})
				if outcome != "committed" {
					leave()
				}
				lock.Unlock()
			}
			return nil
		}
		join(ctx, "copier", RecordsTopic, func(config *sarama.Config) {
			committedOnly(config)
			config.Consumer.Offsets.AutoCommit.Enable = false
		}, handler{claimed: claimed})
		reached = groupOffsets("copier")
	}
	transactions.close()
	end(CopiesTopic)
}

// A member of the pair; the caller closes it.
func member(called string) (*Member, func()) {
	told := NewMember(called)
	assigned := func(claims map[string][]int32) {
		now := []int{}
		for _, partition := range claims[RecordsTopic] {
			now = append(now, int(partition))
		}
		told.Assign(now)
	}
	claimed := func(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
		for range claim.Messages() {
		}
		return nil
	}
	ctx, leave := context.WithCancel(background)
	var left sync.WaitGroup
	left.Go(func() { join(ctx, "pair", RecordsTopic, unchanged, handler{assigned, claimed}) })
	return told, func() {
		leave()
		left.Wait()
	}
}

func rebalance() {
	first, leaveFirst := member("a")
	Until(func() bool { return len(first.Partitions()) == 3 })
	second, leaveSecond := member("b")
	Until(func() bool { return Share(first, second) })
	described := Got(admin.DescribeConsumerGroups([]string{Name + "-pair"}))[0]
	Say("group", Event{"group": described.GroupId, "state": described.State, "members": len(described.Members)})
	leaveSecond()
	Until(func() bool { return len(first.Partitions()) == 3 })
	leaveFirst()
}

func groups() []string {
	listed := []string{}
	for group := range Got(admin.ListConsumerGroups()) {
		if strings.HasPrefix(group, Name) {
			listed = append(listed, group)
		}
	}
	slices.Sort(listed)
	return listed
}

func cleanUp() {
	Say("groups", Event{"listed": groups()})
	for _, group := range groups() {
		Must(admin.DeleteConsumerGroup(group))
	}
	Say("deleted groups", Event{"listed": groups()})
	for _, topic := range topics() {
		Must(admin.DeleteTopic(topic))
	}
	Until(func() bool { return len(topics()) == 0 })
	Say("deleted topics", Event{"listed": topics()})
}

func main() {
	administer()
	produce("default", Rounds, unchanged)
	for codec, compression := range map[string]sarama.CompressionCodec{
		"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	} {
		produce(codec, 1, func(config *sarama.Config) { config.Producer.Compression = compression })
	}
	produce("idempotent", Rounds, idempotent)
	end(RecordsTopic)
	transact()
	copyRecords()
	consume("first", "readers", RecordsTopic, First, unchanged)
	committed("readers")
	consume("second", "readers", RecordsTopic, 0, unchanged)
	committed("readers")
	committed("copier")
	consume("committed", "transactions", TransactionsTopic, 0, committedOnly)
	consume("copies", "copies", CopiesTopic, 0, committedOnly)
	consume("uncommitted", "uncommitted", TransactionsTopic, 0, unchanged)
	rebalance()
	if !Keep {
		cleanUp()
	}
	Say("end", nil)
}
