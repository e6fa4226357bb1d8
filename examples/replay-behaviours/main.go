// Replays behaviours of the model LeaderOutside against a leader of a partition: a toy that checks epochs and sequences.
// It stops at the first step whose answer by the toy differs from the spec's.
//
//	go run main.go [-forgets-epoch] FOLDER
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
)

const maxSequence, cachedBatches = 4, 2 // the constants of the model

// --- the toy: replace it by your implementation ------------------------------------------------------------------

type batch struct{ sequence, count, offset int }

type producer struct {
	epoch   int
	batches []batch
}

type leader struct {
	end          int
	producers    map[int]producer
	forgetsEpoch bool // a deliberate mistake: a batch of an older epoch passes
}

func (l *leader) lastCached(id int) (batch, bool) {
	cached := l.producers[id].batches
	if len(cached) == 0 {
		return batch{}, false
	}
	return cached[len(cached)-1], true
}

func (l *leader) problem(id, epoch, sequence int) string {
	known, found := l.producers[id]
	last, hasBatch := l.lastCached(id)
	switch {
	case !found && l.end > 0: // of a producer that it does not know, a leader that has records takes any sequence
		return "NONE"
	case found && epoch < known.epoch && !l.forgetsEpoch:
		return "INVALID_PRODUCER_EPOCH"
	case found && epoch == known.epoch && hasBatch:
		if sequence != (last.sequence+last.count)%(maxSequence+1) {
			return "OUT_OF_ORDER_SEQUENCE_NUMBER"
		}
	case sequence != 0:
		return "OUT_OF_ORDER_SEQUENCE_NUMBER"
	}
	return "NONE"
}

// produce answers a batch: an error code and the offset of its first record, -1 for an error.
func (l *leader) produce(id, epoch, sequence, count int) (string, int) {
	known := l.producers[id]
	if epoch == known.epoch {
		for _, one := range known.batches {
			if one.sequence == sequence && one.count == count {
				return "NONE", one.offset
			}
		}
	}
	if code := l.problem(id, epoch, sequence); code != "NONE" {
		return code, -1
	}
	if epoch != known.epoch {
		known = producer{epoch: epoch}
	}
	offset := l.end
	known.batches = append(append([]batch{}, known.batches...), batch{sequence, count, offset})
	if len(known.batches) > cachedBatches {
		known.batches = known.batches[1:]
	}
	l.producers[id], l.end = known, l.end+count
	return "NONE", offset
}

// --- the driver: a request for each action, and what the spec says of its answer ----------------------------------

type object = map[string]any

func number(value any) int {
	result, err := strconv.Atoi(value.(object)["#bigint"].(string))
	check(err)
	return result
}

// step plays one action and returns the answer as the spec writes it.
func (l *leader) step(action string, given object) (string, int, bool) {
	switch action {
	case "AppendBatch", "AcknowledgeDuplicate", "RefuseBatch": // one request; the answer tells which of the three it is
		code, offset := l.produce(
			number(given["producerId"]), number(given["epoch"]), number(given["sequence"]), number(given["count"]))
		return code, offset, true
	case "AppendUnidentified":
		offset := l.end
		l.end += number(given["count"])
		return "NONE", offset, true
	case "ElectLeader": // the log stays; no request is answered
		return "NONE", -1, false
	}
	panic("no request for the action " + action)
}

func replay(path string, forgetsEpoch bool) (int, string) {
	text, err := os.ReadFile(path)
	check(err)
	var trace struct{ States []object }
	check(json.Unmarshal(text, &trace))
	toy := &leader{producers: map[int]producer{}, forgetsEpoch: forgetsEpoch}
	for index, state := range trace.States[1:] {
		meta := state["#meta"].(object)
		code, offset, answers := toy.step(meta["action"].(string), meta["parameters"].(object))
		said := object{"error": code, "offset": object{"#bigint": strconv.Itoa(offset)}}
		if answers && !reflect.DeepEqual(said, state["answer"]) {
			label, _ := json.Marshal(meta)
			return index + 1, fmt.Sprintf("step %d, %s: the spec answers %v, the toy %v",
				index+1, label, state["answer"], said)
		}
	}
	return len(trace.States) - 1, ""
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	forgetsEpoch := flag.Bool("forgets-epoch", false, "a deliberate mistake: the toy takes batches of an older epoch")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: go run main.go [-forgets-epoch] FOLDER")
		os.Exit(2)
	}
	paths, err := filepath.Glob(filepath.Join(flag.Arg(0), "*.itf.json"))
	check(err)
	if len(paths) == 0 {
		fmt.Fprintln(os.Stderr, flag.Arg(0)+": no behaviours")
		os.Exit(2)
	}
	sort.Strings(paths)
	steps := 0
	for _, path := range paths {
		taken, difference := replay(path, *forgetsEpoch)
		steps += taken
		if difference != "" {
			fmt.Println(filepath.Base(path) + ": " + difference)
			os.Exit(1)
		}
	}
	fmt.Printf("%d behaviours, %d steps: the toy answers as the spec\n", len(paths), steps)
}
