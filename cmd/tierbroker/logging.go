package main

import (
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tierbroker/tierbroker/config"
)

// newLogger writes to standard error. More than 20 equal messages a second are
// thinned out, so that a fault that repeats doesn't fill the disk with its log.
func newLogger(c *config.Config) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.LogLevel)
	if err != nil {
		return nil, mistake("log-level: %w", err)
	}
	var encoder zapcore.Encoder
	if c.LogFormat == "json" {
		cfg := zap.NewProductionEncoderConfig()
		cfg.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		cfg.EncodeDuration = zapcore.StringDurationEncoder
		encoder = zapcore.NewJSONEncoder(cfg)
	} else {
		cfg := zap.NewDevelopmentEncoderConfig()
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeLevel = zapcore.CapitalLevelEncoder
		cfg.CallerKey = ""
		cfg.ConsoleSeparator = "  "
		encoder = zapcore.NewConsoleEncoder(cfg)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(os.Stderr), level)
	core = zapcore.NewSamplerWithOptions(core, time.Second, 20, 100)
	return zap.New(core), nil
}
