// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// soak asks for the long forms of tests.
var soak = flag.Bool("soak", false, "run tests in their long form")

// TestMain fails when a test leaves a goroutine behind; gnet's own worker pool keeps two for good.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}
