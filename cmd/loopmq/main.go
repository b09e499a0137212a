// SPDX-License-Identifier: Apache-2.0

// Command loopmq is a message broker and name server that speak Apache RocketMQ's protocols.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func main() {
	err := newRootCommand().Execute()
	if err != nil {
		fmt.Fprintln(stderr, "loopmq:", err)
	}
	stderr.Flush(logFlushMax)
	if err != nil {
		os.Exit(1)
	}
}

func newRootCommand() *cobra.Command {
	var log logFlags
	root := &cobra.Command{
		Use:   "loopmq",
		Short: "A message broker and name server for Apache RocketMQ's clients and tools",
		Long: `loopmq is a message broker and a name server that Apache RocketMQ's clients, tools and brokers
(4.9 and 5.x) use as their own. It writes RocketMQ's files and reads RocketMQ's configuration.`,
		Example: `  loopmq run                                        a name server and a broker on 127.0.0.1, to try it
  loopmq namesrv                                    a name server on port 9876
  loopmq broker -c broker.conf -n 10.0.0.1:9876     a broker with RocketMQ's broker.conf`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&log.format, "log-format", "text", "log as text or json, to standard error")
	root.PersistentFlags().StringVar(&log.level, "log-level", "info", "least level to log: debug, info, warn, error")
	root.AddCommand(newRunCommand(&log), newBrokerCommand(&log), newNamesrvCommand(&log), newBenchCommand(), newVersionCommand())
	return root
}

// logFlags are the flags of all verbs.
type logFlags struct{ format, level string }

// logger makes the logger of a server: from here on stderr keeps nobody waiting.
func (f *logFlags) logger() (*slog.Logger, error) {
	var options slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level)
	}
	options.Level = level
	var newHandler func(io.Writer) slog.Handler
	switch f.format {
	case "text":
		newHandler = func(out io.Writer) slog.Handler { return slog.NewTextHandler(out, &options) }
	case "json":
		newHandler = func(out io.Writer) slog.Handler { return slog.NewJSONHandler(out, &options) }
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", f.format)
	}
	stderr.start(newHandler)
	return slog.New(newHandler(stderr)), nil
}

// version is set by the linker in release builds; otherwise the build's own information serves.
var version string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "loopmq", versionText())
		},
	}
}

func versionText() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	text := version
	if text == "" {
		text = info.Main.Version
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; version == "" && revision != "" {
		text += " " + revision[:min(12, len(revision))]
		if settings["vcs.modified"] == "true" {
			text += " (modified)"
		}
	}
	return fmt.Sprintf("%s %s %s/%s", text, info.GoVersion, settings["GOOS"], settings["GOARCH"])
}
