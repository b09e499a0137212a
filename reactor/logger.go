// SPDX-License-Identifier: Apache-2.0

package reactor

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// gnetLogger is gnet's logger on slog. What gnet calls information is of interest only when gnet itself is looked
// into. The last error is kept, because gnet logs why an engine ends and returns nil.
type gnetLogger struct {
	logger    *slog.Logger
	lastError atomic.Pointer[string]
}

func (l *gnetLogger) Debugf(format string, args ...any) {
	l.logger.Debug("gnet: " + fmt.Sprintf(format, args...))
}

func (l *gnetLogger) Infof(format string, args ...any) { l.Debugf(format, args...) }

func (l *gnetLogger) Warnf(format string, args ...any) {
	l.logger.Warn("gnet: " + fmt.Sprintf(format, args...))
}

func (l *gnetLogger) Errorf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	l.lastError.Store(&text)
	l.logger.Error("gnet: " + text)
}

func (l *gnetLogger) Fatalf(format string, args ...any) { l.Errorf(format, args...) }

// Sometimes lets a log line through once per Interval and counts the ones it held back: what a stranger can cause, a
// stranger can cause a million times.
type Sometimes struct {
	Interval time.Duration

	mu         sync.Mutex // guards the rest
	next       time.Time
	suppressed int
}

// Allow says whether a line may be written now, and how many were not since the last one.
func (s *Sometimes) Allow(now time.Time) (suppressed int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.next) {
		s.suppressed++
		return 0, false
	}
	suppressed, s.suppressed = s.suppressed, 0
	s.next = now.Add(s.Interval)
	return suppressed, true
}
