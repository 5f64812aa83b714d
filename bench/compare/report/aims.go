package report

import (
	"fmt"
	"path"
	"strings"
)

// Verdict is what became of an aim.
type Verdict string

// Verdicts.
const (
	Met         Verdict = "met"
	Missed      Verdict = "missed"
	NotMeasured Verdict = "not measured"
)

// side names figures: a metric of one system in the cases whose names hold all the words.
type side struct {
	system string // a pattern of path.Match
	metric string
	words  []string
}

// aim is one row of the table of aims.
type aim struct {
	what, goal string
	scenario   string
	of         side
	// against is what of is divided by: another system in the same case (no words), or another case (words). Without a system the
	// figure stands for itself.
	against side
	limit   float64
	most    bool // the limit is the most that is allowed, else the least
}

var aims = []aim{
	{what: "produce throughput, 16 partitions, 1 KiB, acks=all, page-cache durability", goal: "2 times Kafka or more", scenario: ScenarioProduce,
		of: side{"tierbroker-async", Rate, []string{"1 KiB", "16 partitions", "acks=all"}}, against: side{system: "kafka", metric: Rate}, limit: 2},
	{what: "broker CPU per GB of the same", goal: "half of Kafka's or less", scenario: ScenarioProduce,
		of: side{"tierbroker-async", BrokerCPU, []string{"1 KiB", "16 partitions", "acks=all"}}, against: side{system: "kafka", metric: BrokerCPU}, limit: 0.5, most: true},
	{what: "the same with 10,000 partitions against 16", goal: "80 % of its own figure or more", scenario: ScenarioProduce,
		of:      side{"tierbroker-async", Rate, []string{"1 KiB", "10,000 partitions", "acks=all"}},
		against: side{"tierbroker-async", Rate, []string{"1 KiB", "16 partitions", "acks=all"}}, limit: 0.8},
	{what: "produce with fsync per ack (group commit), 16 producers", goal: "5 times Kafka with flush.messages=1 or more", scenario: ScenarioProduce,
		of: side{"tierbroker-sync", Rate, []string{"fsync", "16 producers"}}, against: side{system: "kafka-fsync", metric: Rate}, limit: 5},
	{what: "tail consume, fan-out 4, broker CPU per GB", goal: "half of Kafka's or less", scenario: ScenarioTail,
		of: side{"tierbroker-async", BrokerCPU, []string{"fan-out 4"}}, against: side{system: "kafka", metric: BrokerCPU}, limit: 0.5, most: true},
	{what: "end-to-end p99 at 60 % load", goal: "half of Kafka's or less", scenario: ScenarioLatency,
		of: side{"tierbroker-async", P99, []string{"60 %"}}, against: side{system: "kafka", metric: P99}, limit: 0.5, most: true},
	{what: "cold replay, eight consumers, against bare minio-go", goal: "80 % or more", scenario: ScenarioCold,
		of: side{"tierbroker-async", Rate, []string{"8 consumers"}}, against: side{system: Bare, metric: Rate}, limit: 0.8},
	{what: "cold replay, eight consumers, against Kafka's tiered read", goal: "3 times or more", scenario: ScenarioCold,
		of: side{"tierbroker-async", Rate, []string{"8 consumers"}}, against: side{system: "kafka-tiered", metric: Rate}, limit: 3},
	{what: "produce p99 with cold replay against without", goal: "1.2 times or less", scenario: ScenarioBeside,
		of: side{"tierbroker-async", P99, []string{"the same broker"}}, against: side{"tierbroker-async", P99, []string{"alone"}}, limit: 1.2, most: true},
	{what: "recovery after kill -9 with 10 GB local log", goal: "under 2 s", scenario: ScenarioRecovery,
		of: side{"tierbroker-async", Recovered, []string{"10 GB"}}, limit: 2, most: true},
	{what: "peak memory, 10,000 partitions under load", goal: "under 1.5 GB", scenario: ScenarioMemory,
		of: side{"tierbroker-async", PeakMemory, []string{"10,000 partitions"}}, limit: 1.5e9 / (1 << 20), most: true},
	{what: "bucket requests that write, per 64 MiB rolled", goal: "1.2 PUT or less", scenario: ScenarioBucket,
		of: side{"tierbroker-async", PutsPerRoll, nil}, limit: 1.2, most: true},
	{what: "bucket requests that read, per 4 MiB replayed cold", goal: "1.1 GET or less", scenario: ScenarioBucket,
		of: side{"tierbroker-async", GetsPerRead, nil}, limit: 1.1, most: true},
}

// judged is an aim with what was measured. Of several cases the worst one decides; it is the one that is shown.
type judged struct {
	aim
	verdict  Verdict
	measured spread // the ratio, or the figure itself
	text     string
}

func judge(s *summary) []judged {
	var out []judged
	for _, a := range aims {
		out = append(out, a.judge(s))
	}
	return out
}

func (a aim) judge(s *summary) judged {
	j := judged{aim: a, verdict: NotMeasured}
	for _, ch := range s.chapters {
		if ch.name != a.scenario {
			continue
		}
		for _, b := range ch.cases {
			c := a.of.in(b)
			if c == nil {
				continue
			}
			if got, text := a.measure(ch, b, c); got.n > 0 && (j.measured.n == 0 || a.worse(got.median, j.measured.median)) {
				j.measured, j.text = got, text
			}
		}
	}
	switch {
	case j.measured.n == 0:
	case a.holds(j.measured.median):
		j.verdict = Met
	default:
		j.verdict = Missed
	}
	return j
}

// measure returns the figure of one case and how it came about.
func (a aim) measure(ch *chapter, b *bench, c *cell) (spread, string) {
	own := spreadOf(c.values(a.of.metric))
	if own.n == 0 {
		return spread{}, ""
	}
	if a.against.system == "" {
		return own, fmt.Sprintf("%s %s (%s)", number(own), unit(a.of.metric), b.name)
	}
	other := b
	if a.against.words != nil {
		other = nil
		for _, o := range ch.cases {
			if a.against.in(o) != nil {
				other = o
				break
			}
		}
	}
	if other == nil {
		return spread{}, ""
	}
	d := a.against.in(other)
	got := ratio(c, d, a.of.metric)
	if got.n == 0 {
		return got, ""
	}
	text := fmt.Sprintf("%s: %s against %s %s", number(got), short(own.median), short(spreadOf(d.values(a.against.metric)).median), unit(a.of.metric))
	if a.against.words == nil {
		text += " (" + b.name + ")"
	}
	return got, text
}

func (a aim) holds(v float64) bool {
	if a.most {
		return v <= a.limit
	}
	return v >= a.limit
}

func (a aim) worse(v, than float64) bool {
	if a.most {
		return v > than
	}
	return v < than
}

// in returns who is meant in a case, nil if the case or the system isn't meant, or has no such figure.
func (x side) in(b *bench) *cell {
	for _, w := range x.words {
		if !holdsWord(b.name, w) {
			return nil
		}
	}
	for _, c := range b.cells {
		if ok, err := path.Match(x.system, c.system); err == nil && ok && len(c.values(x.metric)) > 0 {
			return c
		}
	}
	return nil
}

// holdsWord says whether a name has the words with no letter or digit next to them: "1 KiB" is not in "11 KiB".
func holdsWord(name, words string) bool {
	for at := 0; ; {
		i := strings.Index(name[at:], words)
		if i < 0 {
			return false
		}
		from, to := at+i, at+i+len(words)
		if (from == 0 || !inWord(name[from-1])) && (to == len(name) || !inWord(name[to])) {
			return true
		}
		at = from + 1
	}
}

func inWord(b byte) bool { return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }
