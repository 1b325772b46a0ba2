package tuning

import "testing"

// For tests that lie outside of the package, because tuningtest imports it.
var (
	HostOf  = hostOf
	Audited = audited
)

// RuleTree reads one half of a rule's test: "fires" or "quiet".
func RuleTree(t *testing.T, path, half string) (map[string]string, Profile) {
	t.Helper()
	return readArchive(t, path).tree(t, half)
}

// HostTree reads the files of a recorded host.
func HostTree(t *testing.T, path string) map[string]string {
	t.Helper()
	return readArchive(t, path).files
}
