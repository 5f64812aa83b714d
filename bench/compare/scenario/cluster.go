package scenario

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/system"
)

func init() {
	register(Scenario{Name: report.ScenarioCluster, About: "moves of a partition under load, and failover, of three brokers", Order: 90, Run: clusterRun})
}

// clusterTime is the longest time of the tests that measure.
const clusterTime = 30 * time.Minute

// clusterRun has the tests of moves and failover run: they start a cluster of processes, know what was acknowledged, and say what they
// measured. The figures are theirs.
func clusterRun(ctx context.Context, b *Bench) error {
	if !slices.ContainsFunc(b.Systems, isOurs) {
		return nil
	}
	dir, err := system.Root()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "./integration", "-run", "TestMovesUnderLoad$|TestFailoverTime$", "-count=1", "-v", "-timeout", "25m")
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	out, err := cmd.CombinedOutput()
	found := clusterFigures(string(out))
	for _, r := range found {
		b.Report(r)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil || len(found) == 0 {
		b.failed(report.ScenarioCluster, "moves and failover", "tierbroker", 1, fmt.Errorf("the tests failed, or measured nothing: %w\n%s", err, lastOf(string(out), 2000)))
	}
	return nil
}

func lastOf(s string, n int) string { return s[max(0, len(s)-n):] }

var (
	moveLine     = regexp.MustCompile(`(\w+) with (\d+) MB: (\d+) moves in \S+, \d+ records; longest gap between acknowledgements at a move: n \d+, min (\d+) ms, median (\d+) ms, p90 (\d+) ms, max (\d+) ms`)
	failoverLine = regexp.MustCompile(`(\d+) partitions, lease (\S+): first acknowledgement (\S+) after kill -9, half of them (\S+), all (\S+)`)
)

// clusterFigures reads what the tests said.
func clusterFigures(out string) []report.Result {
	var list []report.Result
	add := func(name string, values map[string]float64) {
		list = append(list, report.Result{Scenario: report.ScenarioCluster, Case: name, System: "tierbroker", Turn: 1, Values: values})
	}
	for line := range strings.Lines(out) {
		if m := moveLine.FindStringSubmatch(line); m != nil {
			v := map[string]float64{}
			for i, metric := range []string{"least ms", "median ms", "p90 ms", "most ms"} {
				v[metric], _ = strconv.ParseFloat(m[4+i], 64) // digits, by the pattern
			}
			add(fmt.Sprintf("move, %s, %s MB in the partition: gap between acknowledgements", m[1], m[2]), v)
		}
		if m := failoverLine.FindStringSubmatch(line); m != nil {
			v := map[string]float64{}
			for i, metric := range []string{"first ack s", "half acked s", "all acked s"} {
				if d, err := time.ParseDuration(m[3+i]); err == nil {
					v[metric] = d.Seconds()
				}
			}
			add(fmt.Sprintf("failover after kill -9, %s partitions, lease %s", m[1], m[2]), v)
		}
	}
	return list
}
