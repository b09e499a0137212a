// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/cobra"

	"loopmq/engine"
	"loopmq/engine/namesrv"
)

func newNamesrvCommand(log *logFlags) *cobra.Command {
	var (
		config configFlags
		print  bool
	)
	cmd := &cobra.Command{
		Use:   "namesrv",
		Short: "Run a name server, as RocketMQ's mqnamesrv",
		Long: `Run a name server until SIGTERM, SIGINT or SIGHUP. Brokers register with it, clients ask it for routes.
The configuration is RocketMQ's: a properties file with the keys of namesrv.conf.`,
		Example: `  loopmq namesrv
  loopmq namesrv -c conf/namesrv.conf
  loopmq namesrv -c conf/namesrv.conf -p`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := log.logger()
			if err != nil {
				return err
			}
			cfg, err := loadNamesrvConfig(config, logger)
			if err != nil {
				return err
			}
			if print {
				stderr.Flush(logFlushMax) // warnings first
				fmt.Fprint(cmd.OutOrStdout(), cfg.Properties())
				return nil
			}
			ctx, stop := signals(logger)
			defer stop()
			server, err := startNamesrv(cfg, logger)
			if err != nil {
				return err
			}
			defer server.Stop()
			select {
			case <-ctx.Done():
				return nil
			case <-server.Done():
				return server.Err()
			}
		},
	}
	config.register(cmd)
	cmd.Flags().BoolVarP(&print, "printConfigItem", "p", false, "print the configuration in force and exit")
	return cmd
}

// loadNamesrvConfig reads -c. Changes at run time go into the same file, as in Java.
func loadNamesrvConfig(f configFlags, logger *slog.Logger) (namesrv.Config, error) {
	cfg := namesrv.DefaultConfig()
	text, err := readConfigFile(f.file)
	if err != nil {
		return cfg, err
	}
	if f.file != "" {
		if cfg.ConfigStorePath, err = filepath.Abs(f.file); err != nil {
			return cfg, err
		}
	}
	properties, err := engine.ParseProperties(text)
	if err != nil {
		return cfg, fmt.Errorf("%s: %w", f.file, err)
	}
	var errs []error
	for _, p := range properties {
		known, err := cfg.Set(p.Key, p.Value)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s:%d: %w", f.file, p.Line, err))
		case !known && f.strict:
			errs = append(errs, fmt.Errorf("%s:%d: %s: unknown key", f.file, p.Line, p.Key))
		case !known:
			logger.Warn("key without effect", "key", p.Key, "file", fmt.Sprintf("%s:%d", f.file, p.Line))
		}
	}
	if err := errors.Join(append(errs, cfg.Validate())...); err != nil {
		return cfg, fmt.Errorf("configuration:\n%w", err)
	}
	return cfg, nil
}
