package report

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// res is one turn of one system.
func res(scenario, kase, system string, turn int, values map[string]float64) Result {
	return Result{Scenario: scenario, Case: kase, System: system, Turn: turn, Values: values}
}

func example() *Run {
	const sixteen, many = "1 KiB, 16 partitions, acks=all", "1 KiB, 10,000 partitions, acks=all"
	r := &Run{Name: "short", Started: time.Date(2026, 11, 29, 23, 0, 0, 0, time.UTC), Seconds: 600, Command: "make bench", Commit: "abc", Go: "go1.26.8",
		Machine: Machine{CPU: "a processor", Cores: 2, MemoryMiB: 100, Kernel: "Linux 6", FileSystem: "ext4", Disk: "vda"}, Pinning: "all on 0 and 1",
		Systems: []Setup{{Name: "tierbroker-async", Version: "1", Durability: "page cache"}, {Name: "kafka", Version: "4", Durability: "page cache", Settings: []string{"a=b"}},
			{Name: "tierbroker-sync", Durability: "fsync"}, {Name: "kafka-fsync", Durability: "fsync"}}}
	for turn, f := range []float64{1, 1.1, 0.9} {
		r.Add(res(ScenarioProduce, sixteen, "tierbroker-async", turn, map[string]float64{Rate: 400 * f, BrokerCPU: 1}),
			res(ScenarioProduce, sixteen, "kafka", turn, map[string]float64{Rate: 150 * f, BrokerCPU: 3}),
			res(ScenarioProduce, sixteen, "tierbroker-sync", turn, map[string]float64{Rate: 300 * f}),
			res(ScenarioProduce, sixteen, "kafka-fsync", turn, map[string]float64{Rate: 100 * f}),
			res(ScenarioProduce, many, "tierbroker-async", turn, map[string]float64{Rate: 100 * f, BrokerCPU: 1.5}))
		for _, s := range []string{"tierbroker-async", "kafka"} {
			r.Results = append(r.Results, Result{Scenario: ScenarioLatency, Case: "60 % of the slower peak", System: s, Turn: turn, Values: map[string]float64{P99: 5 * f},
				Latency: []Quantile{{0.5, 1}, {0.9, 2 * f}, {0.99, 5 * f}, {0.999, 40}, {0.9999, 120}, {1, 300}}})
		}
	}
	return r
}

func TestWrittenResultsAreReadAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "short")
	r := example()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, got) {
		t.Fatalf("wrote %+v, read %+v", r, got)
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "README.md")); err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(dir); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != string(again) {
		t.Errorf("the page made from results.json is another one:\n%s\n%s", page, again)
	}
}

func TestPageShowsPlotsThatExist(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "produce-old.svg"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := example().Write(dir); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 4 {
		t.Errorf("%d plots: rate, cpu, p99 and latency were expected", len(files))
	}
	for _, f := range files {
		if !strings.Contains(string(page), "("+filepath.Base(f)+")") {
			t.Errorf("%s is not in the page", filepath.Base(f))
		}
		if info, err := os.Stat(f); err != nil || info.Size() == 0 || info.Size() > 40<<10 {
			t.Errorf("%s: %v bytes, %v", filepath.Base(f), info.Size(), err)
		}
	}
}

func TestValuesThatAreNoNumbersAreDropped(t *testing.T) {
	r := &Run{Name: "x"}
	r.Results = []Result{{Scenario: "s", Case: "c", System: "tierbroker-async", Values: map[string]float64{Rate: math.Inf(1), P99: math.NaN(), P50: 3},
		Latency: []Quantile{{0.5, math.NaN()}, {0.9, 3}, {math.NaN(), 3}, {7, 3}}}}
	dir := t.TempDir()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	if v := got.Results[0]; len(v.Values) != 1 || v.Values[P50] != 3 || !strings.Contains(v.Error, Rate) || !strings.Contains(v.Error, P99) || len(v.Latency) != 1 {
		t.Errorf("kept %+v", v)
	}
}

// Whatever a scenario hands over, there is a page, and it says what is missing.
func TestHostileRuns(t *testing.T) {
	long := strings.Repeat("é", 1<<16)
	runs := map[string]*Run{
		"nothing at all": {},
		"one turn":       {Results: []Result{res(ScenarioProduce, "c", "kafka", 0, map[string]float64{Rate: 1})}},
		"only errors":    {Results: []Result{{Scenario: ScenarioCold, Case: "c", System: "kafka", Error: "did\nnot | start"}}},
		"no names":       {Results: []Result{{Values: map[string]float64{"": 1, Rate: 0}, Latency: []Quantile{{0.5, 1}, {0.9, 2}}}}},
		"zeros":          {Results: []Result{res(ScenarioProduce, "c", "kafka", 0, map[string]float64{Rate: 0, P99: 0}), res(ScenarioProduce, "c", "tierbroker-async", 0, map[string]float64{Rate: 0})}},
		"negative":       {Results: []Result{res(ScenarioProduce, "c", "kafka", 0, map[string]float64{Rate: -5, BrokerCPU: -1e300})}},
		"huge":           {Results: []Result{res(ScenarioProduce, "c", "kafka", 0, map[string]float64{Rate: 1e300, P99: 1e-300})}},
		"flat latency":   {Results: []Result{{Scenario: "l", Case: "c", System: "k", Latency: []Quantile{{0, 1}, {0.5, 1}, {1, 1}, {1, 1}}}}},
		"slashes":        {Results: []Result{res("../../x", "../y", "k", -1, map[string]float64{Rate: 1}), res("../..-x", "z", "k", -1, map[string]float64{Rate: 1})}},
		"long":           {Results: []Result{{Scenario: long, Case: long, System: long, Values: map[string]float64{Rate: 1}, Error: long}}},
	}
	for name, r := range runs {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := r.Write(dir); err != nil {
				t.Fatal(err)
			}
			page, err := os.ReadFile(filepath.Join(dir, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(page), "## Aims") || strings.Contains(string(page), "NaN") {
				t.Errorf("page:\n%s", page)
			}
			for i, l := range strings.Split(string(page), "\n") {
				if strings.Contains(l, "did") && !strings.Contains(l, "start") {
					t.Errorf("line %d: an error is torn apart: %q", i, l)
				}
			}
			got, err := Read(dir)
			if err != nil || len(got.Results) != len(r.Results) {
				t.Errorf("read %v, %v", got, err)
			}
		})
	}
}

func TestReadRefusesWhatIsNotOurs(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); err == nil {
		t.Error("read from an empty directory")
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil {
		t.Error("read half a file")
	}
	if err := os.Truncate(filepath.Join(dir, "results.json"), mostBytes+1); err != nil {
		t.Fatal(err)
	}
	if err := Rewrite(dir); err == nil {
		t.Error("read a file of any size")
	}
}

func TestCommandLineNamesNoDirectoryOfTheMachine(t *testing.T) {
	got := CommandLine([]string{"/home/x/bin/compare", "-run", "cold|beside", "-dir", "/mnt/disk", "-out=/srv/y", "-turns=3"})
	if want := "compare -run 'cold|beside' -dir DIR -out=DIR -turns=3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestDescribeKnowsThisMachine(t *testing.T) {
	m := Describe(t.TempDir())
	if m.Cores < 1 || m.MemoryMiB < 64 || !strings.HasPrefix(m.Kernel, "Linux ") || m.FileSystem == "unknown" || m.CPU == "" || m.Disk == "" {
		t.Errorf("%+v", m)
	}
}
