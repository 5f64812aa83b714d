package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tierbroker/tierbroker/bench/compare/load"
	"github.com/tierbroker/tierbroker/bench/compare/report"
	"github.com/tierbroker/tierbroker/bench/compare/scenario"
	"github.com/tierbroker/tierbroker/bench/compare/system"
	"github.com/tierbroker/tierbroker/bench/process"
)

const usage = `compare measures tierbroker beside other brokers, on this machine, by turns, with the same clients.

  compare -list                                         what there is
  compare                                               the short form: tierbroker and Kafka, the scenarios that tell most
  compare -full -turns 3                                everything
  compare -systems 'tierbroker-async,kafka' -scenarios produce
  compare -systems 'tierbroker*,nats*' -scenarios latency,tail -run 30s
  compare -report docs/performance/short                a page and its plots anew, from its results.json

Systems are installed at their first use: Java archives and Go programs, through the package registries, into -install.
Brokers run on one set of processors, clients on another (-broker-cpus, -load-cpus). Data goes to -dir and is removed
after each piece; results go to -out. Interrupting ends every process that was started.

`

type options struct {
	systems, scenarios, out, dir string
	report                       string
	brokerCPUs, loadCPUs         string
	full, list                   bool
	turns                        int
	fill                         bool
	warm, run                    time.Duration
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == load.WorkerArg {
		exit(load.Work(os.Stdin, os.Stdout))
	}
	if len(os.Args) > 1 && system.Serve(os.Args[1:]) {
		return
	}
	var o options
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	brokers, loads := scenario.Sides()
	flag.StringVar(&o.systems, "systems", "", "systems by name with commas in between; kafka* are all whose names begin so (default: all, in the short form "+shortSystems+")")
	flag.StringVar(&o.scenarios, "scenarios", "all", "scenarios by name with commas in between")
	flag.BoolVar(&o.full, "full", false, "all scenarios and cases, longer windows; without it the short form")
	flag.IntVar(&o.turns, "turns", 0, "how often each system does each case (default: 1 short, 3 full)")
	flag.DurationVar(&o.warm, "warm", 0, "time before each measured window (default: 6s short, 15s full)")
	flag.DurationVar(&o.run, "run", 0, "length of a measured window (default: 5s short, 20s full)")
	flag.StringVar(&o.out, "out", "", "directory for results, Markdown and plots (default: a new one under the temporary directory)")
	flag.StringVar(&o.report, "report", "", "measure nothing: make the page and the plots of this directory's results.json again")
	flag.StringVar(&o.dir, "dir", filepath.Join(os.TempDir(), "tierbroker-compare"), "scratch directory on the disk that is to be measured")
	flag.StringVar(&o.brokerCPUs, "broker-cpus", commas(brokers), "processors for the brokers")
	flag.StringVar(&o.loadCPUs, "load-cpus", commas(loads), "processors for the clients")
	flag.BoolVar(&o.fill, "fill", true, "fill free memory with page cache before each piece, as it is on a machine that has been up for a while: on a virtual one the first touch of a page is paid to its host")
	flag.BoolVar(&o.list, "list", false, "list systems and scenarios")
	flag.Parse()
	if flag.NArg() > 0 {
		exit(fmt.Errorf("%q is no flag; see -h", flag.Arg(0)))
	}
	if o.list {
		list()
		return
	}
	if o.report != "" {
		exit(rewrite(o.report))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, &o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// rewrite makes the page of an earlier run again.
func rewrite(dir string) error {
	r, err := report.Read(dir)
	if err != nil {
		return err
	}
	return r.Write(dir)
}

func list() {
	fmt.Println("Systems:")
	for _, s := range system.All() {
		fmt.Printf("  %-22s %s (%s)\n", s.Name, s.Version, s.Durability)
	}
	fmt.Println("Scenarios:")
	for _, s := range scenario.All() {
		form := ""
		if !s.Short {
			form = " (-full)"
		}
		fmt.Printf("  %-22s %s%s\n", s.Name, s.About, form)
	}
}

func commas(cpus []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
}

func processors(s string) ([]int, error) {
	var list []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("processors %q: numbers with commas in between", s)
		}
		list = append(list, n)
	}
	return list, nil
}

// shortSystems are those that the aims speak of: all of them would take half an hour.
const shortSystems = "tierbroker-async,tierbroker-sync,kafka,kafka-fsync,kafka-tiered"

func run(ctx context.Context, o *options) (err error) {
	b := &scenario.Bench{Short: !o.full, Dir: o.dir, Turns: o.turns, Warm: o.warm, Run: o.run}
	var errs [4]error
	if o.systems == "" && b.Short {
		o.systems = shortSystems
	}
	b.Systems, errs[0] = system.Choose(cmp.Or(o.systems, "all"))
	scenarios, err := scenario.Choose(o.scenarios, b.Short)
	errs[1] = err
	b.BrokerCPUs, errs[2] = processors(o.brokerCPUs)
	b.LoadCPUs, errs[3] = processors(o.loadCPUs)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	b.Defaults()
	if o.out == "" {
		if o.out, err = os.MkdirTemp("", "tierbroker-compare-results-*"); err != nil {
			return err
		}
	}
	for _, dir := range []string{o.out, o.dir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	began := time.Now()
	b.Say = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	r := describe(o, b, began)
	b.Report = func(result report.Result) {
		r.Add(result)
		b.Say("%s", result)
	}
	b.Install(ctx)
	if o.fill {
		var ballast process.Ballast
		defer func() { err = errors.Join(err, ballast.Close()) }()
		b.Fill = func() error { return ballast.Fill(o.dir) }
	}
	for _, s := range scenarios {
		err = s.Run(ctx, b)
		// What there is, is kept, also when the run is interrupted later.
		r.Seconds = time.Since(began).Seconds()
		if err = errors.Join(err, r.Write(o.out)); err != nil {
			break
		}
	}
	b.Say("results are in %s", o.out)
	return err
}

// describe says what somebody needs to get the results again.
func describe(o *options, b *scenario.Bench, began time.Time) *report.Run {
	r := &report.Run{
		Name: "short", Started: began.UTC(), Command: report.CommandLine(os.Args), Go: runtime.Version(), Machine: report.Describe(o.dir),
		Commit:  system.Commit(),
		Pinning: fmt.Sprintf("brokers on processors %s, clients on %s, S3 server anywhere", o.brokerCPUs, o.loadCPUs),
	}
	if o.full {
		r.Name = "full"
	}
	for _, s := range b.Systems {
		r.Systems = append(r.Systems, report.Setup{Name: s.Name, Version: s.Version, Durability: string(s.Durability), Settings: s.Settings})
	}
	return r
}
