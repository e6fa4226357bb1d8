// Package tour is the common part of the tours of the libraries for Go; python/tour.py describes a tour.
package tour

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	Rounds       = 5
	Round        = 20
	Transactions = 9
	Copied       = 25
	First        = 50
	End          = "end"
	Seconds      = 60 * time.Second
	Quiet        = 500 * time.Millisecond // without a record for so long, there are none left for now
)

var (
	Partitions = map[string]int{"records": 3, "transactions": 2, "copies": 1}
	Retention  = [2]string{"3600000", "7200000"}

	Bootstrap = os.Args[1]
	Name      = os.Args[2]
	Keep      = os.Args[3] == "keep"

	RecordsTopic      = Name + "-records"
	TransactionsTopic = Name + "-transactions"
	CopiesTopic       = Name + "-copies"

	ended = map[string]map[int]bool{}

	printing sync.Mutex
)

// Event is the content of a printed event, without its kind.
type Event map[string]any

// Say prints an event.
func Say(saw string, event Event) {
	printing.Lock()
	defer printing.Unlock()
	if event == nil {
		event = Event{}
	}
	event["saw"] = saw
	line, err := json.Marshal(event)
	Must(err)
	fmt.Println(string(line))
}

// Must panics, and so ends the tour, if there is an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Got returns a result, and panics if there is an error instead.
func Got[T any](value T, err error) T {
	Must(err)
	return value
}

// Until waits until a condition holds, and panics if that takes too long.
func Until(ready func() bool) {
	deadline := time.Now().Add(Seconds)
	for !ready() {
		if time.Now().After(deadline) {
			panic("condition not reached in time")
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Key returns the key of a record of a round; nil for every second one.
func Key(number int) []byte {
	if number%2 == 0 {
		return nil
	}
	return fmt.Appendf(nil, "key-%d", number%3)
}

// Text returns a key or a value as it is printed in an event.
func Text(data []byte) any {
	if data == nil {
		return nil
	}
	return string(data)
}

// Reason returns an error as it is printed in an event.
func Reason(err error) any {
	if err == nil {
		return nil
	}
	return err.Error()
}

// EndedOf returns the partitions whose end readers of a group have seen; the second reader continues after the first.
func EndedOf(group string) map[int]bool {
	if ended[group] == nil {
		ended[group] = map[int]bool{}
	}
	return ended[group]
}

// CountOf returns the number of partitions of a topic.
func CountOf(topic string) int {
	return Partitions[topic[len(Name)+1:]]
}

// Member holds the assignment of a member of the pair.
type Member struct {
	called string
	lock   sync.Mutex
	now    []int
}

// NewMember returns a member without partitions.
func NewMember(called string) *Member {
	return &Member{called: called}
}

// Assign sets the assignment, and prints it if it has changed.
func (m *Member) Assign(partitions []int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	slices.Sort(partitions)
	if !slices.Equal(partitions, m.now) {
		m.now = slices.Clone(partitions)
		Say("assigned", Event{"member": m.called, "partitions": append([]int{}, partitions...)})
	}
}

// Partitions returns the current assignment.
func (m *Member) Partitions() []int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.now)
}

// Share returns whether two members together have all partitions of the records topic, and each has some.
func Share(first, second *Member) bool {
	one, other := first.Partitions(), second.Partitions()
	both := append(slices.Clone(one), other...)
	slices.Sort(both)
	return len(one) > 0 && len(other) > 0 && slices.Equal(both, []int{0, 1, 2})
}

// Reached returns whether a group has reached the end of each partition.
func Reached(ends, reached map[int32]int64) bool {
	if len(ends) < Partitions["records"] {
		return false
	}
	for partition, end := range ends {
		if reached[partition] != end {
			return false
		}
	}
	return true
}
