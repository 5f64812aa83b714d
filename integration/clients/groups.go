package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// groupsName is what -only calls all group cases; one case is called groups/NAME.
const groupsName = "groups"

// memberProgram is a client's member program with an assignment strategy of the classic protocol.
type memberProgram struct {
	command  []string
	strategy string
}

// groupCase is a client with what its groups go through.
type groupCase struct {
	name     string
	client   groupClient
	strategy string // of the classic protocol; the other one has the broker's
	members  int
	scenario func(context.Context, *groupRun) error
}

// protocol is the one that the case's members speak.
func (c groupCase) protocol() string {
	if c.strategy == "" {
		return "consumer"
	}
	return "classic"
}

type groupClient struct {
	prepare func(context.Context, *suite) error
	command func(*suite) []string
	// weight is how many of groupWeight a member takes of the machine.
	weight int
}

// groupWeight bounds what runs at one time: a JVM of two seconds' work at each start is no Go program.
const groupWeight = 44

func groupCases() []groupCase {
	golang := func(name string) groupClient {
		return groupClient{prepareGo, func(s *suite) []string { return []string{s.temp + "/gomember", name} }, 1}
	}
	franz, sarama, kafkaGo := golang("franz-go"), golang("sarama"), golang("kafka-go")
	kafkajs := groupClient{prepareJS, func(s *suite) []string { return []string{s.node(), s.path("js", "member.mjs")} }, 2}
	librdkafka := groupClient{preparePython, func(s *suite) []string { return []string{"python3", s.path("python", "member.py")} }, 1}
	java := groupClient{prepareJavaMember, javaMember, 4}
	return []groupCase{
		{"java-range", java, "range", 4, churn},
		{"java-cooperative", java, "cooperative", 4, churn},
		{"java-consumer", java, "", 4, churn},
		{"java-migration", java, "cooperative", 3, migrate},
		{"franz-go-roundrobin", franz, "roundrobin", 10, churn},
		{"franz-go-cooperative", franz, "cooperative", 10, churn},
		{"franz-go-consumer", franz, "", 10, churn},
		{"sarama-range", sarama, "range", 10, churn},
		{"kafka-go-range", kafkaGo, "range", 10, churn},
		{"kafkajs", kafkajs, "roundrobin", 6, churn},
		{"librdkafka-range", librdkafka, "range", 6, churn},
		{"librdkafka-cooperative", librdkafka, "cooperative", 6, churn},
		{"librdkafka-consumer", librdkafka, "", 6, churn},
		{"java-static", java, "range", 3, static},
		{"java-consumer-static", java, "", 3, static},
		{"franz-go-static", franz, "cooperative", 4, static},
		{"sarama-static", sarama, "range", 4, static},
		{"librdkafka-static", librdkafka, "cooperative", 4, static},
		{"librdkafka-consumer-static", librdkafka, "", 4, static},
	}
}

// groupRun is a case that runs.
type groupRun struct {
	groupCase
	*crew
	program memberProgram
	out     *suite
}

// runGroups runs the group cases, as many at one time as the machine can bear.
func runGroups(ctx context.Context, s *suite, bootstrap string, only []string) {
	var running sync.WaitGroup
	room := newRoom(groupWeight)
	begun := time.Now()
	for _, c := range groupCases() {
		if len(only) > 0 && !slices.Contains(only, groupsName) && !slices.Contains(only, groupsName+"/"+c.name) {
			continue
		}
		if err := c.client.prepare(ctx, s); err != nil {
			s.fail(groupsName+" "+c.name+": setup", err)
			continue
		}
		n := min(c.members*c.client.weight, groupWeight)
		room.take(n)
		running.Go(func() {
			defer room.give(n)
			runGroup(ctx, s, bootstrap, c)
		})
	}
	running.Wait()
	fmt.Fprintf(s.out, "# %s took %v\n", groupsName, time.Since(begun).Round(100*time.Millisecond))
}

// room is a weighted semaphore.
type room struct {
	mu   sync.Mutex
	free int
	more *sync.Cond
}

func newRoom(n int) *room {
	r := &room{free: n}
	r.more = sync.NewCond(&r.mu)
	return r
}

func (r *room) take(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.free < n {
		r.more.Wait()
	}
	r.free -= n
}

func (r *room) give(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	r.more.Broadcast()
}

var printingGroups sync.Mutex

// runGroup runs a case; its lines come all at once, when it is over.
func runGroup(ctx context.Context, s *suite, bootstrap string, c groupCase) {
	var text bytes.Buffer
	begun := time.Now()
	r := &groupRun{groupCase: c, program: memberProgram{c.client.command(s), c.strategy}, out: &suite{out: &text}}
	if err := r.through(ctx, s, bootstrap); err != nil {
		r.out.fail(r.label("run"), err)
	}
	printingGroups.Lock()
	defer printingGroups.Unlock()
	fmt.Fprint(s.out, text.String())
	fmt.Fprintf(s.out, "# %s %s took %v\n", groupsName, c.name, time.Since(begun).Round(100*time.Millisecond))
	s.passed, s.failed = s.passed+r.out.passed, s.failed+r.out.failed
}

func (r *groupRun) label(what string) string { return groupsName + " " + r.name + ": " + what }

func (r *groupRun) through(ctx context.Context, s *suite, bootstrap string) error {
	crew, err := newCrew(ctx, s, bootstrap, r.name)
	if err != nil {
		return err
	}
	r.crew = crew
	defer crew.close()
	if err := r.scenario(ctx, r); err != nil {
		return err
	}
	v, err := crew.finish(ctx)
	if err != nil {
		return err
	}
	r.out.check(r.label(fmt.Sprintf("all of %d records are processed, %d of them again; commits run neither ahead nor back", v.records, v.repeated)),
		func() error { return first(v.skipped) })
	what := fmt.Sprintf("one owner at a time, over %d assignments of a partition", v.handovers)
	if v.lost > 0 { // on a busy machine a member may be late; who else owned the partition is judged all the same
		what += fmt.Sprintf(", %d of them taken from members that were late", v.lost)
	}
	r.out.check(r.label(what), func() error { return first(v.shared) })
	r.out.check(r.label("nothing is processed by others than the owner"), func() error { return first(v.strayed) })
	return nil
}

// first makes an error of the first findings.
func first(findings []string) error {
	if len(findings) == 0 {
		return nil
	}
	const shown = 3
	return fmt.Errorf("%d findings: %s", len(findings), strings.Join(findings[:min(shown, len(findings))], "; "))
}

// step changes the crew and waits until its assignment has settled.
func (r *groupRun) step(ctx context.Context, what string, change func() error) error {
	if err := change(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	begun := time.Now()
	if err := r.settle(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.out.check(r.label(fmt.Sprintf("%s, settled after %.1f s", what, time.Since(begun).Seconds())), func() error { return nil })
	return nil
}

// churn has members join, leave, crash and come back.
func churn(ctx context.Context, r *groupRun) error {
	join := func(n int) func() error {
		return func() error { return r.join(r.program, r.protocol(), "", n) }
	}
	crashed := max(1, r.members/4)
	for _, s := range []struct {
		what   string
		change func() error
	}{
		{"2 members join", join(2)},
		{fmt.Sprintf("%d more join", r.members-2), join(r.members - 2)},
		{"1 leaves", func() error { return r.leave(1) }},
		{fmt.Sprintf("%d crash", crashed), func() error { r.crash(crashed); return nil }},
		{fmt.Sprintf("%d come back", crashed+1), join(crashed + 1)},
		{fmt.Sprintf("%d leave at once", r.members-2), func() error { return r.leave(r.members - 2) }},
	} {
		if err := r.step(ctx, s.what, s.change); err != nil {
			return err
		}
	}
	return nil
}
