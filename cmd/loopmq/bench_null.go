// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"loopmq/bench/null"
)

// newBenchNullCommand is for comparisons, which start it; it serves by hand too.
func newBenchNullCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "null HOST:PORT",
		Short: "Answer every request at once, and do nothing else",
		Long: `Answer every request of the remoting protocol at once with the same words, until the process is ended. The latency of this
server is that of the machine, the kernel and the generator.`,
		Example: `  loopmq bench null 127.0.0.1:10999
  loopmq bench produce --broker 127.0.0.1:10999 --rate 5000`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return null.Serve(args[0], func() { fmt.Fprintln(cmd.ErrOrStderr(), "null server at", args[0]) })
		},
	}
}
