package report

import (
	"strings"
	"testing"
)

func verdictOf(t *testing.T, r *Run, what string) judged {
	t.Helper()
	for _, j := range judge(summarize(r)) {
		if strings.Contains(j.what, what) {
			return j
		}
	}
	t.Fatalf("no aim holds %q", what)
	return judged{}
}

func TestAimsAreDecidedBothWays(t *testing.T) {
	const (
		sixteen = "1 KiB, 16 partitions, acks=all"
		many    = "1 KiB, 10,000 partitions, acks=all"
	)
	pair := func(scenario, kase, us, them, metric string, x, y float64) []Result {
		return []Result{res(scenario, kase, us, 0, map[string]float64{metric: x}), res(scenario, kase, them, 0, map[string]float64{metric: y})}
	}
	one := func(scenario, kase, metric string, v float64) []Result {
		return []Result{res(scenario, kase, "tierbroker-async", 0, map[string]float64{metric: v})}
	}
	for _, c := range []struct {
		what        string
		met, missed []Result
	}{
		{"produce throughput, 16", pair(ScenarioProduce, sixteen, "tierbroker-async", "kafka", Rate, 200, 100), pair(ScenarioProduce, sixteen, "tierbroker-async", "kafka", Rate, 199, 100)},
		{"CPU per GB of the same", pair(ScenarioProduce, sixteen, "tierbroker-async", "kafka", BrokerCPU, 1, 2), pair(ScenarioProduce, sixteen, "tierbroker-async", "kafka", BrokerCPU, 1.01, 2)},
		{"10,000 partitions against 16",
			append(one(ScenarioProduce, "x", Rate, 1), res(ScenarioProduce, sixteen, "tierbroker-async", 0, map[string]float64{Rate: 100}), res(ScenarioProduce, many, "tierbroker-async", 0, map[string]float64{Rate: 80})),
			[]Result{res(ScenarioProduce, many, "tierbroker-async", 0, map[string]float64{Rate: 79}), res(ScenarioProduce, sixteen, "tierbroker-async", 0, map[string]float64{Rate: 100})}},
		{"fsync per ack", pair(ScenarioProduce, "fsync, 16 producers", "tierbroker-sync", "kafka-fsync", Rate, 50, 10), pair(ScenarioProduce, "fsync, 16 producers", "tierbroker-sync", "kafka-fsync", Rate, 49, 10)},
		{"fan-out 4", pair(ScenarioTail, "fan-out 4", "tierbroker-async", "kafka", BrokerCPU, 1, 2), pair(ScenarioTail, "fan-out 4", "tierbroker-async", "kafka", BrokerCPU, 2, 2)},
		{"end-to-end p99", pair(ScenarioLatency, "60 % of the peak", "tierbroker-async", "kafka", P99, 4, 9), pair(ScenarioLatency, "60 % of the peak", "tierbroker-async", "kafka", P99, 5, 9)},
		{"bare minio-go", pair(ScenarioCold, "16 partitions, 8 consumers", "tierbroker-async", Bare, Rate, 80, 100), pair(ScenarioCold, "16 partitions, 8 consumers", "tierbroker-async", Bare, Rate, 79, 100)},
		{"Kafka's tiered", pair(ScenarioCold, "16 partitions, 8 consumers", "tierbroker-async", "kafka-tiered", Rate, 300, 100), pair(ScenarioCold, "16 partitions, 8 consumers", "tierbroker-async", "kafka-tiered", Rate, 299, 100)},
		{"with cold replay against without",
			append(one(ScenarioBeside, "alone", P99, 10), one(ScenarioBeside, "8 consumers replay from the same broker", P99, 12)...),
			append(one(ScenarioBeside, "alone", P99, 10), one(ScenarioBeside, "8 consumers replay from the same broker", P99, 12.1)...)},
		{"recovery", one(ScenarioRecovery, "10 GB of log", Recovered, 1.9), one(ScenarioRecovery, "10 GB of log", Recovered, 2.1)},
		{"peak memory", one(ScenarioMemory, "10,000 partitions under load", PeakMemory, 1430), one(ScenarioMemory, "10,000 partitions under load", PeakMemory, 1431)},
		{"64 MiB rolled", one(ScenarioBucket, "write", PutsPerRoll, 1.2), one(ScenarioBucket, "write", PutsPerRoll, 1.21)},
		{"4 MiB replayed", one(ScenarioBucket, "replay", GetsPerRead, 1.1), one(ScenarioBucket, "replay", GetsPerRead, 1.11)},
	} {
		if got := verdictOf(t, &Run{Results: c.met}, c.what); got.verdict != Met || got.text == "" {
			t.Errorf("%s: %s (%s), want met", c.what, got.verdict, got.text)
		}
		if got := verdictOf(t, &Run{Results: c.missed}, c.what); got.verdict != Missed {
			t.Errorf("%s: %s (%s), want missed", c.what, got.verdict, got.text)
		}
		// Half of what is needed is not an answer, nor is an error.
		if got := verdictOf(t, &Run{Results: []Result{{Scenario: c.met[0].Scenario, Case: c.met[0].Case, System: "tierbroker-async", Error: "no"}}}, c.what); got.verdict != NotMeasured {
			t.Errorf("%s: %s after an error, want not measured", c.what, got.verdict)
		}
		if got := verdictOf(t, &Run{}, c.what); got.verdict != NotMeasured {
			t.Errorf("%s: %s without results, want not measured", c.what, got.verdict)
		}
	}
}

func TestTheWorstCaseDecides(t *testing.T) {
	r := &Run{}
	for kase, v := range map[string]float64{"1 partition, 8 consumers": 50, "16 partitions, 8 consumers": 120} {
		r.Add(res(ScenarioCold, kase, "tierbroker-async", 0, map[string]float64{Rate: v}), res(ScenarioCold, kase, Bare, 0, map[string]float64{Rate: 100}))
	}
	if got := verdictOf(t, r, "bare minio-go"); got.verdict != Missed || !strings.Contains(got.text, "1 partition, 8 consumers") {
		t.Errorf("%s (%s), want missed by the case with one partition", got.verdict, got.text)
	}
	// One consumer is another question.
	r = &Run{Results: []Result{res(ScenarioCold, "16 partitions, 1 consumer", "tierbroker-async", 0, map[string]float64{Rate: 1}), res(ScenarioCold, "16 partitions, 1 consumer", Bare, 0, map[string]float64{Rate: 100})}}
	if got := verdictOf(t, r, "bare minio-go"); got.verdict != NotMeasured {
		t.Errorf("%s (%s), want not measured", got.verdict, got.text)
	}
}

func TestRatiosAreTakenTurnByTurn(t *testing.T) {
	r := &Run{}
	// The machine has half its speed in the second turn and a quarter in the third; ours is twice as fast in each.
	for turn, f := range []float64{1, 0.5, 0.25} {
		r.Add(res("s", "c", "tierbroker-async", turn, map[string]float64{Rate: 200 * f}), res("s", "c", "kafka", turn, map[string]float64{Rate: 100 * f}))
	}
	r.Add(res("s", "c", "kafka", 3, map[string]float64{Rate: 1}), res("s", "c", "tierbroker-async", 4, map[string]float64{Rate: 1000}))
	b := summarize(r).chapters[0].cases[0]
	if got := ratio(b.cell("tierbroker-async"), b.cell("kafka"), Rate); got != (spread{median: 2, min: 2, max: 2, n: 3}) {
		t.Errorf("%+v, want 2 in three turns", got)
	}
}

func TestOnlyEqualsAreCompared(t *testing.T) {
	r := &Run{Systems: []Setup{{Name: "tierbroker-sync", Durability: "fsync"}, {Name: "tierbroker-async", Durability: "page cache"}, {Name: "kafka", Durability: "page cache"}, {Name: "kafka-fsync", Durability: "fsync"}}}
	for _, s := range []string{"tierbroker-sync", "tierbroker-async", "kafka", "kafka-fsync"} {
		r.Add(res("s", "c", s, 0, map[string]float64{Rate: 1}))
	}
	s := summarize(r)
	b := s.chapters[0].cases[0]
	for them, us := range map[string]string{"kafka": "tierbroker-async", "kafka-fsync": "tierbroker-sync"} {
		if got := s.peerOf(b, b.cell(them)); got == nil || got.system != us {
			t.Errorf("%s is compared with %+v, want %s", them, got, us)
		}
	}
	b.cells = b.cells[:1] // sync alone
	if got := s.peerOf(b, &cell{system: "kafka"}); got != nil {
		t.Errorf("kafka without fsync is compared with %s", got.system)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want spread
	}{{nil, spread{}}, {[]float64{4}, spread{4, 4, 4, 1}}, {[]float64{4, 1}, spread{2.5, 1, 4, 2}}, {[]float64{9, 1, 2}, spread{2, 1, 9, 3}}} {
		if got := spreadOf(c.v); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.v, got, c.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123: "0.012", 0.333: "0.33", 1.005: "1.00", 12.34: "12.3", 99.96: "100", 1234567: "1,234,567", -1234: "-1,234", 999.6: "1,000"} {
		if got := short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestWordsOfCases(t *testing.T) {
	for _, c := range []struct {
		name, words string
		want        bool
	}{{"11 KiB, x", "1 KiB", false}, {"11 KiB and 1 KiB", "1 KiB", true}, {"16 partitions, 18 consumers", "8 consumers", false}, {"16 partitions", "16 partitions", true}, {"", "a", false}} {
		if got := holdsWord(c.name, c.words); got != c.want {
			t.Errorf("%q in %q: %v", c.words, c.name, got)
		}
	}
}
