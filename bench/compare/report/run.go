package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Files that Write makes in its directory; plots have names of their own and end in .svg.
const (
	resultsFile = "results.json"
	pageFile    = "README.md"
)

// mostBytes is the largest results.json that Read takes: a full run has less than 1 MiB.
const mostBytes = 64 << 20

// Run is one execution of the program: everything that somebody needs to judge its results, or to get them again.
type Run struct {
	Name    string    `json:"name"`    // "short", "full": also the name of its directory
	Started time.Time `json:"started"` // by the machine's clock
	Seconds float64   `json:"seconds"` // how long it took
	Command string    `json:"command"` // as somebody would type it in the repository
	Commit  string    `json:"commit"`  // of the repository, with "-dirty" where files were changed
	Go      string    `json:"go"`      // version that compiled the Go programs
	Machine Machine   `json:"machine"`
	Pinning string    `json:"pinning"` // which processors brokers, load and S3 server had
	Systems []Setup   `json:"systems"`
	Results []Result  `json:"results"`
}

// Setup is one system that took part.
type Setup struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Durability string   `json:"durability"` // what an acknowledgement means; only equals are compared
	Settings   []string `json:"settings"`   // what differs from the defaults
}

// Add appends results. Values that are no numbers (a rate over no time) can't be kept in JSON: they are dropped, and said.
func (r *Run) Add(results ...Result) {
	for _, res := range results {
		for _, name := range sortedKeys(res.Values) {
			if v := res.Values[name]; math.IsNaN(v) || math.IsInf(v, 0) {
				delete(res.Values, name)
				res.Error = strings.TrimPrefix(res.Error+fmt.Sprintf("; %s was not a number", name), "; ")
			}
		}
		res.Latency = slices.DeleteFunc(slices.Clone(res.Latency), func(q Quantile) bool {
			return math.IsNaN(q.MS) || math.IsInf(q.MS, 0) || !(q.Quantile >= 0 && q.Quantile <= 1)
		})
		r.Results = append(r.Results, res)
	}
}

// Write writes results, page and plots into dir, which is made if needed, and removes plots of an earlier run.
func (r *Run) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	kept := *r
	kept.Results = nil
	kept.Add(r.Results...)
	text, err := json.MarshalIndent(&kept, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := writeFile(filepath.Join(dir, resultsFile), append(text, '\n')); err != nil {
		return err
	}
	return kept.writePages(dir)
}

// Read reads what Write wrote.
func Read(dir string) (*Run, error) {
	path := filepath.Join(dir, resultsFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > mostBytes {
		return nil, fmt.Errorf("%s has %d bytes: not ours", resultsFile, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", resultsFile, err)
	}
	return r, nil
}

// Rewrite writes page and plots in dir again from its results.
func Rewrite(dir string) error {
	r, err := Read(dir)
	if err != nil {
		return err
	}
	return r.writePages(dir)
}

func (r *Run) writePages(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.svg"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	s := summarize(r)
	plots, err := writePlots(s, dir)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, pageFile), []byte(page(r, s, plots)))
}

// writeFile replaces a file whole: a run that dies keeps the last page.
func writeFile(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// CommandLine is the command as a reader would type it: the program by its name, directories of this machine as DIR.
func CommandLine(args []string) string {
	out := make([]string, 0, len(args))
	for i, a := range args {
		if i == 0 {
			out = append(out, filepath.Base(a))
			continue
		}
		flag, val, ok := strings.Cut(a, "=")
		switch {
		case ok && filepath.IsAbs(val):
			a = flag + "=DIR"
		case filepath.IsAbs(a):
			a = "DIR"
		case strings.ContainsAny(a, " \t\"'|*"):
			a = "'" + a + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}
