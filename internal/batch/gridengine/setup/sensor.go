package setup

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Load is what a host's load sensor reports.
type Load struct {
	Slots  int      // VMs of one CPU that it could start now
	Images []string // that it has
}

// Sensor speaks the protocol of load sensors: for each line that it reads it reports once, at "quit" and at the end of
// its input it ends. The host is what Grid Engine calls it. A host whose agent does not answer has no slots and no
// images: jobs that ask for them go elsewhere.
func Sensor(in io.Reader, out io.Writer, host string, load func() (Load, error)) error {
	for lines := bufio.NewScanner(in); ; {
		if !lines.Scan() || strings.TrimSpace(lines.Text()) == "quit" {
			return lines.Err()
		}
		l, err := load()
		if err != nil {
			l = Load{}
		}
		images := slices.DeleteFunc(slices.Clone(l.Images),
			func(name string) bool { return strings.ContainsAny(name, ":,\n ") })
		slices.Sort(images)
		list := strings.Join(images, ",")
		if list == "" {
			list = "none"
		}
		// One write: execd must never see half of a report.
		if _, err := fmt.Fprintf(out, "begin\n%[1]s:vmslots:%[2]d\n%[1]s:vmimages:%[3]s\nend\n", host, l.Slots,
			list); err != nil {
			return err
		}
	}
}
