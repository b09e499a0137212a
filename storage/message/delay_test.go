// SPDX-License-Identifier: Apache-2.0

package message

import (
	"slices"
	"testing"
)

func TestParseDelayLevels(t *testing.T) {
	f := func(text string, want ...int64) {
		t.Helper()
		levels, err := ParseDelayLevels(text)
		if (err == nil) != (len(want) > 0) || !slices.Equal(levels.Millis, want) {
			t.Fatalf("ParseDelayLevels(%q)=%v, %v; want %v", text, levels.Millis, err, want)
		}
	}
	f("1s 5m 2h 1d", 1_000, 300_000, 7_200_000, 86_400_000)
	f("  1s   2s ", 1_000, 2_000)
	f("0s", 0)
	f("")
	f(" ")
	f("1")
	f("s")
	f("1x")
	f("-1s")
	f("1.5s")
	f("1s 2")
	f("9223372036854775807s")
	f("1é")
}

func TestDeliver(t *testing.T) {
	levels, err := ParseDelayLevels("1s 5s 2h")
	if err != nil {
		t.Fatal(err)
	}
	f := func(level int, want int64) {
		t.Helper()
		if got := levels.Deliver(level, 1_000_000); got != 1_000_000+want {
			t.Fatalf("Deliver(%d) waits %d; want %d", level, got-1_000_000, want)
		}
	}
	f(1, 1_000)
	f(3, 7_200_000)
	f(0, 1_000)
	f(-1, 1_000)
	f(4, 1_000)
	if levels.Max() != 3 || levels.Clip(4) != 3 || levels.Clip(3) != 3 || levels.Clip(1) != 1 {
		t.Fatal("levels above the highest are not clipped to it")
	}
}
