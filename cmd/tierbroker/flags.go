package main

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tierbroker/tierbroker/config"
)

const runHelp = `A Kafka-compatible broker whose archive lives in an S3 bucket.

Without a command, tierbroker starts a broker. Everything has a default: a first
run keeps data and archive below ./data and serves 127.0.0.1:9092.`

const runExamples = `  tierbroker
  tierbroker --data-dir /var/lib/tierbroker --bucket 's3://archive?endpoint=http://10.0.0.5:9000&region=us-east-1'
  tierbroker --config /etc/tierbroker.yaml
  tierbroker check-config --config /etc/tierbroker.yaml`

// addConfigFlags gives a command --config and one flag for each setting that has
// one. The flags are text: package config parses them like file and environment.
func addConfigFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.String("config", "", "YAML file with settings (also $TIERBROKER_CONFIG)")
	for i := range config.Settings {
		s := &config.Settings[i]
		if s.Flag {
			flags.String(s.Name, "", usage(s))
		}
	}
	var settings bytes.Buffer
	if err := config.WriteHelp(&settings); err != nil {
		panic(err) // writing to memory doesn't fail
	}
	cmd.SetUsageTemplate(cmd.UsageTemplate() + "\nSettings, for the file and, as TIERBROKER_..., the environment:\n" + settings.String())
}

func usage(s *config.Setting) string {
	text := s.Text
	if s.Default != "" {
		text += " (default " + s.Default + ")"
	}
	return text
}

// loadConfig reads the configuration for a command. Its error is the operator's.
func loadConfig(cmd *cobra.Command) (*config.Config, error) {
	in := config.Input{Flags: map[string]string{}, Env: os.Environ(), CheckKafka: checkKafka, CheckBucket: checkBucket}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "config" {
			in.File = f.Value.String()
		} else if _, ok := config.Lookup(f.Name); ok {
			in.Flags[f.Name] = f.Value.String()
		}
	})
	if in.File == "" {
		in.File = os.Getenv(config.EnvPrefix + "CONFIG")
	}
	c, err := config.Load(in)
	if err != nil {
		return nil, mistake("the configuration is wrong:\n%w", err)
	}
	return c, nil
}
