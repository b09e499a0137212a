// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"loopmq/bench/result"
)

// reportFiles are where the results of bench verbs go beside the table on the terminal.
type reportFiles struct{ json, html, markdown string }

func (f *reportFiles) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.json, "json", "", "write the results to this `file`, for machines and for bench report")
	flags.StringVar(&f.html, "html", "", "write a report with plots to this `file`: one page that needs nothing else")
	flags.StringVar(&f.markdown, "markdown", "", "write the table to this `file`, as Markdown")
}

// write prints the table and writes the files that were asked for.
func (f *reportFiles) write(out io.Writer, title string, results []*result.Result) error {
	return errors.Join(result.WriteText(out, results), f.writeFiles(title, results))
}

func (f *reportFiles) writeFiles(title string, results []*result.Result) (err error) {
	for _, file := range []struct {
		path  string
		write func(io.Writer) error
	}{
		{f.json, func(w io.Writer) error { return result.Write(w, results...) }},
		{f.html, func(w io.Writer) error { return result.WriteHTML(w, title, results) }},
		{f.markdown, func(w io.Writer) error { return result.WriteMarkdown(w, results) }},
	} {
		if file.path != "" {
			err = errors.Join(err, writeWhole(file.path, file.write))
		}
	}
	return err
}

// writeWhole replaces a file by a whole new one.
func writeWhole(path string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := path + ".new"
	err := os.WriteFile(next, text.Bytes(), 0o644)
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(next)
	}
	return err
}

// readResults reads files of results. Where a file has a run that one before has too, its runs have the file's name behind
// their own: they are shown beside the others, not as more rounds of theirs.
func readResults(paths []string) ([]*result.Result, error) {
	var all []*result.Result
	known := make(map[runKey]bool)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		some, err := result.Read(bytes.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if slices.ContainsFunc(some, func(r *result.Result) bool { return known[keyOf(r)] }) {
			for _, r := range some {
				rename(r, strings.TrimSuffix(filepath.Base(path), ".json"))
			}
		}
		for _, r := range some {
			known[keyOf(r)] = true
		}
		all = append(all, some...)
	}
	return all, nil
}

// runKey is what tells a run from others.
type runKey struct {
	row, name string
	round     int
}

func keyOf(r *result.Result) runKey {
	if r.Row == "" {
		return runKey{name: r.Label}
	}
	return runKey{r.Row, r.Subject, r.Round}
}

// rename puts the name of a run's file behind its own.
func rename(r *result.Result, file string) {
	if r.Row == "" {
		r.Label += ", " + file
	} else {
		r.Subject += ", " + file
	}
}
