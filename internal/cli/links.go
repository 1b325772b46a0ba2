package cli

import (
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/batch/gridengine"
)

// Called is the command line of a program that was started as name: batch systems that take a path without arguments are given a link to
// grange. `grange-exec-SYSTEM COMMAND...` is `grange exec --batch SYSTEM -- COMMAND...`.
func Called(name string, args []string) []string {
	name = filepath.Base(name)
	if system, ok := strings.CutPrefix(name, "grange-exec-"); ok {
		return append([]string{"exec", "--batch", system, "--"}, args...)
	}
	switch name {
	case gridengine.SensorLink:
		return append([]string{"gridengine", "load-sensor"}, args...)
	case gridengine.ShepherdLink:
		return append([]string{"gridengine", "shepherd", "--"}, args...)
	}
	return args
}
