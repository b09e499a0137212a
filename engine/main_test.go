// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind; gnet's own worker pool keeps two for good.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
		goleak.IgnoreAnyFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"))
}
