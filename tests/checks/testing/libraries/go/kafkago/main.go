// The tour of kafka-go, which has no idempotent and no transactional producer.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	. "kafka-eos.invalid/libraries/tour"
)

var (
	background = context.Background()
	admin      = &kafka.Client{Addr: kafka.TCP(Bootstrap)}
)

func configured() string {
	asked := kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: RecordsTopic}
	asked.ConfigNames = []string{"retention.ms"}
	request := &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{asked}}
	described := Got(admin.DescribeConfigs(background, request)).Resources[0]
	Must(described.Error)
	return described.ConfigEntries[0].ConfigValue
}

func administer() {
	cluster := Got(admin.Metadata(background, &kafka.MetadataRequest{}))
	brokers := []int{}
	for _, broker := range cluster.Brokers {
		brokers = append(brokers, broker.ID)
	}
	Say("cluster", Event{"brokers": brokers, "controller": cluster.Controller.ID})
	request := &kafka.CreateTopicsRequest{}
	for end, count := range Partitions {
		request.Topics = append(request.Topics, kafka.TopicConfig{
			Topic: Name + "-" + end, NumPartitions: count, ReplicationFactor: 1,
			ConfigEntries: []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: Retention[0]}},
		})
	}
	for _, err := range Got(admin.CreateTopics(background, request)).Errors {
		Must(err)
	}
	counts := map[string]int{}
	Until(func() bool { // brokers learn of it after the controller
		asked := &kafka.MetadataRequest{Topics: []string{RecordsTopic, TransactionsTopic, CopiesTopic}}
		for _, topic := range Got(admin.Metadata(background, asked)).Topics {
			counts[topic.Name] = len(topic.Partitions)
		}
		return counts[RecordsTopic]*counts[TransactionsTopic]*counts[CopiesTopic] > 0
	})
	Say("topics", Event{"topics": counts})
	Say("configuration", Event{"retention.ms": configured()})
	set := kafka.IncrementalAlterConfigsRequestConfig{
		Name: "retention.ms", Value: Retention[1], ConfigOperation: kafka.ConfigOperationSet,
	}
	altered := Got(admin.IncrementalAlterConfigs(background, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: RecordsTopic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{set},
		}},
	}))
	Must(altered.Resources[0].Error)
	Until(func() bool { return configured() == Retention[1] })
	Say("configuration", Event{"retention.ms": configured()})
}

// Sends rounds of records, and waits for each round. With the default acks, none, a writer knows only what it has sent.
func produce(kind string, rounds int, writer *kafka.Writer) {
	writer.Addr, writer.Topic = kafka.TCP(Bootstrap), RecordsTopic
	if writer.RequiredAcks != kafka.RequireNone {
		writer.Completion = func(messages []kafka.Message, err error) {
			for _, message := range messages {
				event := Event{"kind": kind, "key": Text(message.Key), "value": string(message.Value)}
				if err != nil {
					event["error"] = err.Error()
					Say("failed", event)
				} else {
					event["partition"], event["offset"] = message.Partition, message.Offset
					Say("acknowledged", event)
				}
			}
		}
	}
	for first := 0; first < rounds*Round; first += Round {
		var messages []kafka.Message
		for number := first; number < first+Round; number++ {
			value := fmt.Appendf(nil, "%s-%d", kind, number)
			messages = append(messages, kafka.Message{Key: Key(number), Value: value})
		}
		err := writer.WriteMessages(background, messages...)
		if writer.RequiredAcks == kafka.RequireNone {
			for number, message := range messages {
				event := Event{"kind": kind, "key": Text(message.Key), "value": string(message.Value)}
				var each kafka.WriteErrors
				if errors.As(err, &each) && each[number] != nil {
					event["error"] = each[number].Error()
					Say("failed", event)
				} else {
					Say("sent", event)
				}
			}
		}
	}
	Must(writer.Close())
}

func end(topic string) {
	next := 0
	balancer := kafka.BalancerFunc(func(kafka.Message, ...int) int { return next })
	writer := &kafka.Writer{
		Addr: kafka.TCP(Bootstrap), Topic: topic, Balancer: balancer, RequiredAcks: kafka.RequireAll,
	}
	for next = range CountOf(topic) {
		Must(writer.WriteMessages(background, kafka.Message{Value: []byte(End)}))
	}
	Must(writer.Close())
}

func committed(group string) {
	request := &kafka.OffsetFetchRequest{GroupID: Name + "-" + group, Topics: map[string][]int{RecordsTopic: {0, 1, 2}}}
	var fetched *kafka.OffsetFetchResponse
	Until(func() bool { // its connection may be lost
		var err error
		fetched, err = admin.OffsetFetch(background, request)
		return err == nil && fetched.Error == nil
	})
	offsets := map[int]int64{}
	for _, row := range fetched.Topics[RecordsTopic] {
		Must(row.Error)
		if row.CommittedOffset >= 0 {
			offsets[row.Partition] = row.CommittedOffset
		}
	}
	Say("committed", Event{"group": Name + "-" + group, "offsets": offsets})
}

// Reads until each partition's end, or at most so many records; commits and leaves.
func consume(reader, group, topic string, most int) {
	consumer := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{Bootstrap}, GroupID: Name + "-" + group, Topic: topic})
	ended := EndedOf(group)
	var read []kafka.Message
	for len(ended) < CountOf(topic) && (most == 0 || len(read) < most) {
		message, err := consumer.FetchMessage(background)
		if err != nil { // the reader retries by itself
			Say("failed", Event{"kind": "fetch", "error": err.Error()})
			time.Sleep(Quiet)
			continue
		}
		read = append(read, message)
		Say("consumed", Event{
			"reader": reader, "topic": message.Topic, "partition": message.Partition, "offset": message.Offset,
			"key": Text(message.Key), "value": Text(message.Value),
		})
		if string(message.Value) == End {
			ended[message.Partition] = true
		}
	}
	Until(func() bool { return consumer.CommitMessages(background, read...) == nil }) // its connection may be lost
	Must(consumer.Close())
}

// A member of the pair; the caller closes it.
func member(called string) (*Member, func()) {
	told := NewMember(called)
	group := Got(kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: Name + "-pair", Brokers: []string{Bootstrap}, Topics: []string{RecordsTopic},
	}))
	var left sync.WaitGroup
	left.Go(func() {
		for {
			generation, err := group.Next(background)
			if errors.Is(err, kafka.ErrGroupClosed) || errors.Is(err, io.ErrClosedPipe) {
				return
			}
			if err != nil {
				Say("failed", Event{"kind": "group", "error": err.Error()})
				continue
			}
			now := []int{}
			for _, assigned := range generation.Assignments[RecordsTopic] {
				now = append(now, assigned.ID)
			}
			told.Assign(now)
		}
	})
	return told, func() {
		Must(group.Close())
		left.Wait()
	}
}

func rebalance() {
	first, leaveFirst := member("a")
	Until(func() bool { return len(first.Partitions()) == 3 })
	second, leaveSecond := member("b")
	Until(func() bool { return Share(first, second) })
	described := Got(admin.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{Name + "-pair"}}))
	pair := described.Groups[0]
	Must(pair.Error)
	Say("group", Event{"group": pair.GroupID, "state": pair.GroupState, "members": len(pair.Members)})
	leaveSecond()
	Until(func() bool { return len(first.Partitions()) == 3 })
	leaveFirst()
}

func groups() []string {
	listed := []string{}
	for _, group := range Got(admin.ListGroups(background, &kafka.ListGroupsRequest{})).Groups {
		if strings.HasPrefix(group.GroupID, Name) {
			listed = append(listed, group.GroupID)
		}
	}
	slices.Sort(listed)
	return listed
}

func cleanUp() {
	Say("groups", Event{"listed": groups()})
	for _, err := range Got(admin.DeleteGroups(background, &kafka.DeleteGroupsRequest{GroupIDs: groups()})).Errors {
		Must(err)
	}
	Say("deleted groups", Event{"listed": groups()})
	topics := []string{RecordsTopic, TransactionsTopic, CopiesTopic}
	for _, err := range Got(admin.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: topics})).Errors {
		Must(err)
	}
	left := []string{}
	Until(func() bool {
		left = left[:0]
		for _, topic := range Got(admin.Metadata(background, &kafka.MetadataRequest{})).Topics {
			if strings.HasPrefix(topic.Name, Name) {
				left = append(left, topic.Name)
			}
		}
		return len(left) == 0
	})
	Say("deleted topics", Event{"listed": left})
}

func main() {
	administer()
	produce("default", 1, &kafka.Writer{})
	produce("all", Rounds, &kafka.Writer{RequiredAcks: kafka.RequireAll})
	for codec, compression := range map[string]kafka.Compression{
		"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	} {
		produce(codec, 1, &kafka.Writer{RequiredAcks: kafka.RequireAll, Compression: compression})
	}
	end(RecordsTopic)
	consume("first", "readers", RecordsTopic, First)
	committed("readers")
	consume("second", "readers", RecordsTopic, 0)
	committed("readers")
	rebalance()
	if !Keep {
		cleanUp()
	}
	Say("end", nil)
}
