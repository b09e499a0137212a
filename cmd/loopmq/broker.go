// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"loopmq/engine"
)

// configFlags are the flags of verbs that read a broker's configuration.
type configFlags struct {
	file   string
	strict bool
}

func (f *configFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.file, "configFile", "c", "", "properties file with RocketMQ's keys")
	cmd.Flags().BoolVar(&f.strict, "strict", false, "refuse a file with unknown keys")
}

// load reads the file over base and says what there is to say about it.
func (f *configFlags) load(base engine.Config, logger *slog.Logger) (engine.Config, error) {
	text, err := readConfigFile(f.file)
	if err != nil {
		return base, err
	}
	if f.file != "" {
		if base.ConfigFile, err = filepath.Abs(f.file); err != nil {
			return base, err
		}
	}
	cfg, notices, err := engine.LoadConfig(text, engine.ConfigSource{Name: f.file, Strict: f.strict}, base)
	for _, n := range notices {
		logger.Warn(n.Text, "key", n.Key, "file", fmt.Sprintf("%s:%d", f.file, n.Line))
	}
	if err != nil {
		return cfg, fmt.Errorf("configuration:\n%w", err)
	}
	return cfg, nil
}

func newBrokerCommand(log *logFlags) *cobra.Command {
	var (
		config configFlags
		names  string
		print  bool
	)
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker, as RocketMQ's mqbroker",
		Long: `Run a broker until SIGTERM, SIGINT or SIGHUP, which stop it in order; a later one ends it at once.

The configuration is RocketMQ's: a properties file with the keys of broker.conf, in the spellings of 4.9 and 5.x.
A key that has no effect here is named once; an unknown key is a warning, or an error with --strict; a wrong value is
an error. -p prints the configuration in force, which -c reads back.`,
		Example: `  loopmq broker -c conf/broker.conf -n '10.0.0.1:9876;10.0.0.2:9876'
  loopmq broker -c conf/broker.conf -p
  NAMESRV_ADDR=10.0.0.1:9876 loopmq broker`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := log.logger()
			if err != nil {
				return err
			}
			base := engine.DefaultConfig()
			base.NamesrvAddr = os.Getenv("NAMESRV_ADDR")
			cfg, err := config.load(base, logger)
			if err != nil {
				return err
			}
			if names != "" {
				if strings.Trim(names, "; ") == "" {
					return fmt.Errorf("-n %q: want host:port;host:port", names)
				}
				cfg.NamesrvAddr = names
				if err := cfg.Validate(); err != nil {
					return err
				}
			}
			if print {
				stderr.Flush(logFlushMax) // warnings first
				fmt.Fprint(cmd.OutOrStdout(), cfg.Properties())
				return nil
			}
			if cfg.NamesrvAddr == "" {
				logger.Warn("no name server: clients find this broker only once it is registered with one (-n, namesrvAddr or NAMESRV_ADDR)")
			}
			ctx, stop := signals(logger)
			defer stop()
			return serveBroker(ctx, cfg, logger)
		},
	}
	config.register(cmd)
	cmd.Flags().StringVarP(&names, "namesrvAddr", "n", "", "name servers, host:port;host:port")
	cmd.Flags().BoolVarP(&print, "printConfigItem", "p", false, "print the configuration in force and exit")
	return cmd
}
