package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Machine is what a run was made on, as far as the system tells.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"` // that this process could use
	MemoryMiB  int64  `json:"memory_mib"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"` // of the data directories, with its device and options that change what a write costs
	Disk       string `json:"disk"`
}

// Describe looks at this machine; dataDir is where the brokers' data goes. What can't be read is "unknown": a report
// without the name of a disk is better than none.
func Describe(dataDir string) Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown", FileSystem: "unknown", Disk: "unknown"}
	if v := field("/proc/cpuinfo", "model name"); v != "" {
		m.CPU = v
	}
	if kb, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryMiB = kb >> 10
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = "Linux " + strings.TrimSpace(string(text))
	}
	device := ""
	m.FileSystem, device = fileSystem(dataDir)
	if device != "" {
		m.Disk = disk(device)
	}
	return m
}

// field returns the value of the first line "key: value" of a file, "" if there is none.
func field(path, key string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// fileSystem finds the mount that a directory is on: the last one whose root is the longest above it.
func fileSystem(dir string) (name, device string) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "unknown", ""
	}
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return "unknown", ""
	}
	name, longest := "unknown", -1
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 || len(f[1]) < longest {
			continue
		}
		if rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(f[1], "/")); ok && (rest == "" || rest[0] == '/') {
			longest, device = len(f[1]), f[0]
			name = fmt.Sprintf("%s on %s (%s)", f[2], filepath.Base(f[0]), f[3])
		}
	}
	return name, device
}

// disk describes a block device.
func disk(device string) string {
	name := filepath.Base(device)
	base := filepath.Join("/sys/class/block", name)
	if to, err := filepath.EvalSymlinks(base); err == nil {
		if _, err := os.Stat(filepath.Join(to, "partition")); err == nil {
			base = filepath.Dir(to)
		}
	}
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(base, file))
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(text))
	}
	var out []string
	if sectors, err := strconv.ParseInt(read("size"), 10, 64); err == nil {
		out = append(out, fmt.Sprintf("%s, %d GiB", name, sectors>>21))
	}
	if model := read("device/model"); model != "" {
		out = append(out, model)
	}
	switch read("queue/rotational") {
	case "0":
		out = append(out, "not rotational")
	case "1":
		out = append(out, "says that it is rotational")
	}
	if w := read("queue/write_cache"); w != "" {
		out = append(out, w)
	}
	if len(out) == 0 {
		var st syscall.Stat_t
		if err := syscall.Stat(device, &st); err != nil {
			return "unknown"
		}
		return name
	}
	return strings.Join(out, ", ")
}
