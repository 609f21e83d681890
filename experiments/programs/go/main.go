// A service that copies records from one topic to another in a consumer group, on franz-go. It prints what it does as
// JSON lines, as docs/clients.md asks (level 3).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sys/unix"
)

type fields = map[string]any

var (
	mu  sync.Mutex
	out = bufio.NewWriter(os.Stdout)
)

// tell prints one event. The time is taken under the lock, so that it never goes back.
func tell(event string, f fields) {
	mu.Lock()
	defer mu.Unlock()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	line := fields{"e": event, "t": now.Nano()}
	for name, value := range f {
		line[name] = value
	}
	text, _ := json.Marshal(line)
	out.Write(append(text, '\n'))
}

func flush() {
	mu.Lock()
	defer mu.Unlock()
	out.Flush()
}

func partitions(of map[string][]int32) [][2]any {
	ps := [][2]any{}
	for topic, numbers := range of {
		for _, number := range numbers {
			ps = append(ps, [2]any{topic, number})
		}
	}
	return ps
}

func main() {
	var settings struct{ Bootstrap, Group, Input, Output string }
	if err := json.Unmarshal([]byte(os.Args[1]), &settings); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			if strings.TrimSpace(in.Text()) == "stop" {
				stop()
			}
		}
		os.Exit(4) // end of standard input: the harness is gone
	}()
	ownership := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, client *kgo.Client, of map[string][]int32) {
			member, generation := client.GroupMetadata()
			tell(event, fields{"m": member, "g": generation, "ps": partitions(of)})
			flush()
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(settings.Bootstrap, ",")...), kgo.ConsumerGroup(settings.Group),
		kgo.ConsumeTopics(settings.Input), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.OnPartitionsAssigned(ownership("assigned")), kgo.OnPartitionsRevoked(ownership("revoked")),
		kgo.OnPartitionsLost(ownership("lost")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		panic(err)
	}
	tell("started", fields{"client": "franz-go", "acks": "all"})
	sends, commits := 0, 0
	for ctx.Err() == nil {
		flush()
		fetched := client.PollRecords(ctx, 500)
		for _, failed := range fetched.Errors() {
			if !errors.Is(failed.Err, context.Canceled) {
				os.Stderr.WriteString(failed.Err.Error() + "\n")
			}
		}
		records := fetched.Records()
		copies, index := make([]*kgo.Record, len(records)), map[*kgo.Record]int{}
		for i, r := range records {
			tell("delivered", fields{"topic": r.Topic, "p": r.Partition, "o": r.Offset})
			copies[i] = &kgo.Record{Topic: settings.Output, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
			index[copies[i]] = i
			of := [3]any{r.Topic, r.Partition, r.Offset}
			tell("attempt", fields{"n": sends + i, "topic": settings.Output, "p": r.Partition, "of": of})
		}
		flush() // attempts are told before they are sent
		next := map[int32]int64{}
		for _, result := range client.ProduceSync(context.Background(), copies...) {
			i := index[result.Record] // results come in the order of their answers
			if result.Err != nil {
				tell("result", fields{"n": sends + i, "x": result.Err.Error()})
				flush()
				panic(result.Err) // nothing of this batch is committed: another instance gets it again
			}
			tell("result", fields{"n": sends + i, "o": result.Record.Offset})
			tell("processed", fields{"topic": settings.Input, "p": records[i].Partition, "o": records[i].Offset})
			next[records[i].Partition] = max(next[records[i].Partition], records[i].Offset+1)
		}
		sends += len(copies)
		if len(next) > 0 {
			positions := [][3]any{}
			for partition, offset := range next {
				positions = append(positions, [3]any{settings.Input, partition, offset})
			}
			tell("commit", fields{"n": commits, "os": positions})
			flush()
			answer := fields{"n": commits}
			if err := client.CommitRecords(context.Background(), records...); err != nil {
				answer["x"] = err.Error()
			}
			tell("committed", answer)
			commits++
		}
		client.AllowRebalance()
	}
	tell("stopping", nil)
	client.CloseAllowingRebalance()
	tell("closed", nil)
	flush()
}
