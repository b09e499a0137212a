// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

// soak asks for the long forms of tests.
var soak = flag.Bool("soak", false, "run tests in their long form")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
