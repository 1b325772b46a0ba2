package container

import (
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/grange-project/grange/internal/farm"
)

func TestEnvironment(t *testing.T) {
	for name, c := range map[string]struct{ image, caller, want []string }{
		"defaults": {[]string{"A=i", "B=i"}, []string{"B=c", "C=c"},
			[]string{"A=i", "B=c", "C=c", "PATH=" + runtimePath}},
		"paths":    {[]string{"PATH=/opt:/bin"}, []string{"PATH=/bin:/mine:"}, []string{"PATH=/opt:/bin:/mine"}},
		"set path": {[]string{"PATH=/opt"}, []string{"PATH=/bin", "X=y", "PATH=/only"}, []string{"X=y", "PATH=/only"}},
		"none":     {nil, nil, []string{"PATH=" + runtimePath}},
	} {
		if got := (Config{Env: c.image}).Environment(c.caller); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestConfigRefused(t *testing.T) {
	_, err := configOf(&v1.ConfigFile{Config: v1.Config{Cmd: []string{"a\x00b"}}})
	wantCode(t, "NUL", err, farm.CodeBadImage, "NUL")
	_, err = configOf(&v1.ConfigFile{Config: v1.Config{Env: []string{"A=" + string(make([]byte, mostConfig))}}})
	wantCode(t, "NUL in a long one", err, farm.CodeBadImage, "")
	c, err := configOf(&v1.ConfigFile{Config: v1.Config{WorkingDir: "../../a"}})
	if err != nil || c.Workdir != "/a" {
		t.Errorf("%+v, %v", c, err)
	}
}
