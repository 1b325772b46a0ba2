// Package version is which grange this is: the release, which the file VERSION beside it holds, and the commit.
package version

import (
	_ "embed"
	"runtime/debug"
	"strings"
)

//go:embed VERSION
var release string

// commit is what the Makefile sets, also for builds with -buildvcs=false: -ldflags "-X
// .../internal/version.commit=HASH".
var commit string

// Release returns the number of the release that this is, or is on the way to: "0.1.0".
func Release() string { return strings.TrimSpace(release) }

// Commit returns 12 digits of the commit that this was built from, "unknown" where nobody said. What was not committed
// adds ".dirty".
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	return commitOf(commit, info)
}

// String returns both in one word: "0.1.0+0123456789ab". Agents, servers and reports say it.
func String() string { return Release() + "+" + Commit() }

// Long returns what --version prints after the program's name.
func Long() string { return Release() + ", commit " + Commit() }

func commitOf(set string, info *debug.BuildInfo) string {
	if set != "" {
		return set
	}
	hash, dirty := "", ""
	if info != nil {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				hash = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = ".dirty"
			}
		}
	}
	if hash == "" {
		return "unknown"
	}
	return hash[:min(len(hash), 12)] + dirty
}
