// Package waittest is how long tests wait for what comes by itself.
package waittest

import (
	"testing"
	"time"
)

// Limit is how long a test waits before it fails. A test that passes waits as long as it must. On a machine whose
// processors others use, what takes milliseconds elsewhere takes seconds.
const Limit = 2 * time.Minute

// For waits until something is so. It fails the test after Limit.
func For(t testing.TB, what string, so func() bool) {
	t.Helper()
	if !Until(so) {
		t.Fatalf("not within %v: %s", Limit, what)
	}
}

// Until waits until something is so, and reports whether it was within Limit.
func Until(so func() bool) bool {
	for deadline := time.Now().Add(Limit); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
