// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"loopmq/bench/wire"
)

// slowSendFrom is from when on a broker of ours is to say where a send's time went: below stallFrom, since the way to the
// broker and back is not in it.
const slowSendFrom = stallFrom / 2

// slowSend is a send that a broker of ours found slow, by wire.Clock, and the stage in which most of its time went.
type slowSend struct {
	from, to time.Duration
	stage    string
}

var slowSendLine = regexp.MustCompile(`(?m)^time=(\S+) level=WARN msg="slow send[^"]*" stage=(\S+) took=(\S+) `)

// slowSends are those in the broker's log.
func slowSends(log []byte) (slow []slowSend) {
	for _, m := range slowSendLine.FindAllStringSubmatch(string(log), -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			continue
		}
		took, err := time.ParseDuration(m[3])
		if err != nil {
			continue
		}
		to := time.Duration(at.UnixNano() - wire.WallClock(0))
		slow = append(slow, slowSend{to - took, to, m[2]})
	}
	return slow
}

// stagesDuring names the stages of slow sends that overlap a time.
func stagesDuring(slow []slowSend, from, to time.Duration) string {
	var stages []string
	for _, s := range slow {
		if s.from > to || s.to < from {
			continue
		}
		text := fmt.Sprintf("broker's stage %s %d ms", s.stage, (s.to - s.from).Milliseconds())
		if !slices.Contains(stages, text) {
			stages = append(stages, text)
		}
	}
	return strings.Join(stages, ", ")
}

// slowSends reads what the master has found slow; a server that the suite has not started has no log here.
func (h *host) slowSends() ([]slowSend, error) {
	if h.master == nil {
		return nil, nil
	}
	log, err := os.ReadFile(h.master.Output())
	return slowSends(log), err
}
