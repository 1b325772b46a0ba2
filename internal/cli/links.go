package cli

import (
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/batch/gridengine/setup"
)

// Called is the command line of a program that was started as name: batch systems that take a path without arguments
// are given a link to grange. `grange-exec-SYSTEM COMMAND...` is `grange exec --batch SYSTEM -- COMMAND...`; the job's
// own variables GRANGE_VM_IMAGE and GRANGE_VM_SHAPE stand in for the flags that its user cannot give there. The site's
// policy decides about both.
func Called(name string, args []string, getenv func(string) string) []string {
	name = strings.TrimPrefix(filepath.Base(name), "-") // Grid Engine has its starter look like a login shell
	if system, ok := strings.CutPrefix(name, "grange-exec-"); ok {
		line := []string{"exec", "--batch", system}
		for flag, variable := range map[string]string{"--image=": "GRANGE_VM_IMAGE", "--shape=": "GRANGE_VM_SHAPE"} {
			if v := getenv(variable); v != "" {
				line = append(line, flag+v)
			}
		}
		return append(append(line, "--"), args...)
	}
	switch {
	case name == setup.SensorLink:
		return append([]string{"gridengine", "load-sensor"}, args...)
	// with the job's number, whatever the link is called
	case name == setup.ShepherdLink, strings.HasPrefix(name, "sge_shepherd-"):
		return append([]string{"gridengine", "shepherd", "--", name}, args...)
	}
	return args
}
