package version

import (
	"regexp"
	"runtime/debug"
	"testing"
)

func TestRelease(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(Release()) {
		t.Errorf("VERSION holds %q, not three numbers", Release())
	}
}

func TestCommit(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	vcs := func(settings ...debug.BuildSetting) *debug.BuildInfo { return &debug.BuildInfo{Settings: settings} }
	clean := []debug.BuildSetting{{Key: "vcs.revision", Value: hash}, {Key: "vcs.modified", Value: "false"}}
	dirty := []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: hash}}
	for name, c := range map[string]struct {
		set  string
		info *debug.BuildInfo
		want string
	}{
		"no build information": {"", nil, "unknown"},
		"-buildvcs=false":      {"", vcs(), "unknown"},
		"a clean tree":         {"", vcs(clean...), "0123456789ab"},
		"with changes":         {"", vcs(dirty...), "0123456789ab.dirty"},
		"set by make":          {"abcdef012345.dirty", vcs(clean...), "abcdef012345.dirty"},
	} {
		if got := commitOf(c.set, c.info); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
