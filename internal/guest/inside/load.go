package inside

import (
	"bytes"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/guest"
)

// readLoad reads how busy this machine is; nil where its kernel does not say. A host asks every few seconds: two files
// are read, and of the first, which has a line for each CPU and each interrupt, the beginning alone.
func readLoad(fsys fs.FS) *guest.Load {
	times := strings.Fields(firstLine(fsys, "proc/stat"))
	if len(times) < 6 || times[0] != "cpu" {
		return nil
	}
	const wait, last = 5, 8 // user nice system idle iowait irq softirq steal; guest time is part of user
	var l guest.Load
	for i, text := range times[1:min(len(times), last+1)] {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil
		}
		l.CPU += n
		if i+1 == wait {
			l.Wait = n
		}
	}
	text, _ := fs.ReadFile(fsys, "proc/vmstat") // without it there is no swap
	l.SwapIn, l.SwapOut = counter(text, "pswpin "), counter(text, "pswpout ")
	return &l
}

// firstLine is that of a file, up to a bound that no kernel's line reaches; "" where there is none.
func firstLine(fsys fs.FS, path string) string {
	f, err := fsys.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 512))
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// counter is the number behind a name at the beginning of a line; 0 where there is none.
func counter(text []byte, name string) uint64 {
	_, rest, _ := bytes.Cut(append([]byte("\n"), text...), []byte("\n"+name))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseUint(string(line), 10, 64)
	return n
}
