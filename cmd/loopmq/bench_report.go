// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
)

func newBenchReportCommand() *cobra.Command {
	var files reportFiles
	title := "loopmq bench"
	cmd := &cobra.Command{
		Use:   "report FILE…",
		Short: "Show results of earlier runs side by side",
		Long: `Read the JSON files that other bench verbs have written, and print their table. With --html the runs' plots lie
over each other on one page; runs of a comparison are compared again. Where two files have runs of the same name, those
of the later file are told by its name too.`,
		Example: `  loopmq bench report before.json after.json --html both.html`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			results, err := readResults(paths)
			if err != nil {
				return err
			}
			return files.write(cmd.OutOrStdout(), title, results)
		},
	}
	files.register(cmd.Flags())
	cmd.Flags().StringVar(&title, "title", title, "heading of the page")
	return cmd
}
