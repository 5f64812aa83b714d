package config

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// EnvName returns the name of the setting's variable.
func (s *Setting) EnvName() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// Form says how a value is written: its kind, unit, bounds or choices.
func (s *Setting) Form() string {
	form := string(s.Kind)
	if s.Choices != nil {
		form = strings.Join(s.Choices, " or ")
		if s.Kind == KindList {
			form = "list of " + strings.Join(s.Choices, ", ")
		}
	}
	if s.Unit != "" {
		form += " of " + s.Unit
	}
	if s.Min != 0 || s.Max != 0 {
		form += fmt.Sprintf(", %s to %s", s.show(s.Min), s.show(s.Max))
	}
	if s.Zero != "" {
		form += "; 0: " + s.Zero
	}
	return form
}

func (s *Setting) show(n int64) string {
	var c Config
	switch f := s.field(&c).(type) {
	case *Bytes:
		*f = Bytes(n)
	case *int32:
		*f = int32(n)
	case *int:
		*f = int(n)
	default:
		return FormatDuration(time.Duration(n))
	}
	return s.get(&c)
}

// Usage is the text of the setting's flag.
func (s *Setting) Usage() string { return s.Text }

// WriteMarkdown writes docs/configuration.md.
func WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString(markdownIntro)
	group := ""
	for i := range Settings {
		s := &Settings[i]
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(&b, "\n## %s\n\n| setting | value | default | meaning | why this default |\n|---|---|---|---|---|\n", group)
		}
		def := "(empty)"
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		name := "`" + s.Name + "`"
		if s.Flag {
			name += " (flag)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, s.Form(), def, cell(s.Text), cell(s.Reason))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell keeps angle brackets and bars from being taken for markup.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", ">", "&gt;").Replace(s)
}

const markdownIntro = `# Configuration

This page is generated from the table in ` + "`config/settings.go`" + ` by ` + "`make docs`" + `; a test keeps it in step.

Every setting can stand in the file given by ` + "`--config FILE`" + ` (or ` + "`$TIERBROKER_CONFIG`" + `) under its name, and in the environment as
` + "`TIERBROKER_`" + ` plus its name in upper case with underscores. Those marked *flag* also have a flag of that name.
A flag wins over the environment, the environment over the file, the file over the default.

` + "```yaml" + `
data-dir: /var/lib/tierbroker
kafka-listen: 0.0.0.0:9092
advertise: broker1.example.com
bucket: s3://archive/prod?endpoint=http://10.0.0.5:9000&region=us-east-1
cache-bytes: 2GiB
kafka-config:
  retention.ms: 31536000000
  tierbroker.durability: sync
` + "```" + `

Sizes take a unit (` + "`64MiB`, `10MB`" + `) or are bytes. Durations look like ` + "`500ms`, `5m`, `1h30m`, `7d`" + `. Lists are YAML lists, or
separated by commas; ` + "`kafka-config`" + ` in the environment is written ` + "`key=value;key=value`" + `.

` + "`tierbroker check-config --config FILE`" + ` checks a file without starting anything, and lists every fault at once, with its line;
without faults it prints every setting, its value and where that came from. A broker with a faulty configuration exits with code 2.
`

// WriteEffective writes every setting with its value and source, for
// check-config.
func (c *Config) WriteEffective(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "SETTING\tVALUE\tFROM")
	for i := range Settings {
		s := &Settings[i]
		v := s.get(c)
		if v == "" {
			v = "-"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\n", s.Name, v, c.Source(s.Name))
	}
	return tw.Flush()
}

// Values returns every setting's name and value as text, for the admin API.
func (c *Config) Values() map[string]string {
	m := make(map[string]string, len(Settings))
	for i := range Settings {
		m[Settings[i].Name] = Settings[i].get(c)
	}
	return m
}

// WriteHelp writes the settings as plain text, for --help.
func WriteHelp(w io.Writer) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	group := ""
	for i := range Settings {
		s := &Settings[i]
		if s.Group != group {
			group = s.Group
			fmt.Fprintf(tw, "%s:\t\t\n", group)
		}
		def := s.Default
		if def == "" {
			def = "-"
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", s.Name, def, s.Form())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(b.String()) {
		if _, err := io.WriteString(w, strings.TrimRight(line, " \n")+"\n"); err != nil {
			return err
		}
	}
	return nil
}
