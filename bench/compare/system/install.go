package system

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed pom/*.xml
var poms embed.FS

// toolsDir is where brokers are installed, beside the other tools of the repository.
func toolsDir() (string, error) {
	dir, err := root()
	return filepath.Join(dir, ".tools", "bench"), err
}

// goInstall builds a program of another module, unless that version of it is there, and gives its path.
func goInstall(ctx context.Context, module, version string, say func(string)) (string, error) {
	tools, err := toolsDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tools, filepath.Base(strings.TrimSuffix(module, "/v2"))+"-"+version)
	program := filepath.Join(dir, filepath.Base(strings.TrimSuffix(module, "/v2")))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	say("go install " + module + "@" + version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "install", module+"@"+version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	cmd.Dir = os.TempDir() // outside of any module
	if err := run(cmd, say); err != nil {
		return "", fmt.Errorf("build %s: %w; it needs Go and a module proxy that serves this version", module, err)
	}
	return program, nil
}

// mavenJars lets Maven fetch what a POM names into a folder, unless it did so before with the same POM, and gives the folder.
func mavenJars(ctx context.Context, name string, say func(string)) (string, error) {
	tools, err := toolsDir()
	if err != nil {
		return "", err
	}
	pom, err := poms.ReadFile("pom/" + name + ".xml")
	if err != nil {
		return "", err
	}
	dir := filepath.Join(tools, name)
	if had, err := os.ReadFile(filepath.Join(dir, "pom.xml")); err == nil && bytes.Equal(had, pom) {
		return dir, nil
	}
	say("Maven fetches what " + name + " needs (some 100 MB the first time)")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(tools, name+"-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh) //nolint:errcheck // it has its final name, or is in nobody's way
	if err := os.WriteFile(filepath.Join(fresh, "pom.xml"), pom, 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-Dstyle.color=never", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+fresh)
	cmd.Dir = fresh
	if err := run(cmd, say); err != nil {
		return "", fmt.Errorf("fetch %s: %w; it needs mvn, Java 17 and a Maven repository that serves the versions in bench/compare/system/pom/%s.xml", name, err, name)
	}
	return dir, errors.Join(os.Chmod(fresh, 0o755), os.RemoveAll(dir), os.Rename(fresh, dir))
}

// run runs a command and passes on what it says; the error has the first line of it that speaks of one.
func run(cmd *exec.Cmd, say func(string)) error {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	var told string
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if told == "" && strings.Contains(strings.ToUpper(lines.Text()), "ERROR") {
			told = lines.Text()
		}
		if strings.TrimSpace(lines.Text()) != "" {
			say("  " + lines.Text())
		}
	}
	_, err = io.Copy(io.Discard, out) // what comes after a line too long to pass on
	if err = errors.Join(err, cmd.Wait()); err != nil && told != "" {
		err = fmt.Errorf("%w (%s)", err, told)
	}
	return err
}
