package agent

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
)

// awaitMinimum lets no VM begin while a resource of the host is below its minimum: a full disk breaks the VMs that run,
// and the next one first. A batch job is refused at once, for its batch system has other hosts; others wait, unless
// they said that they would not.
func (v *vm) awaitMinimum() error {
	for {
		short := v.agent.short()
		if len(short) == 0 {
			return nil
		}
		err := &farm.Error{Kind: farm.NoCapacity, Code: CodeBelowMinimum,
			Message: "the host takes no more VMs: " + strings.Join(short, "; "),
			Hint:    "free what is short, or see [minimum] in the agent's configuration"}
		if v.request.NoWait || v.record.Caller.Batch.System != "" {
			return err
		}
		v.publishWaiting(err.Error())
		if err := sleep(v.ctx, minimumPause); err != nil {
			return err
		}
	}
}

const minimumPause = time.Second

// short returns what the host has less of than its minimum. What cannot be read is not known to be short.
func (a *Agent) short() []string {
	c := a.config()
	free, err := a.freeSpace(c.StateDir)
	available, read := availableMemory(os.DirFS("/"))
	return shortOf([]amount{{"disk space in " + c.StateDir, free, err == nil, c.Minimum.Disk},
		{"memory", available, read, c.Minimum.Memory}})
}

// amount is what there is of one resource, if that is known, and what there must be.
type amount struct {
	what    string
	have    farm.Bytes
	known   bool
	minimum farm.Bytes
}

func shortOf(all []amount) (short []string) {
	for _, a := range all {
		if a.known && a.have < a.minimum {
			short = append(short, fmt.Sprintf("%s is short: %v free, the minimum is %v", a.what,
				a.have/farm.MiB*farm.MiB, a.minimum))
		}
	}
	return short
}

// availableMemory is the kernel's own estimate of what new work could use without swapping.
func availableMemory(files fs.FS) (farm.Bytes, bool) {
	text, err := fs.ReadFile(files, "proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if fields := strings.Fields(string(line)); len(fields) >= 2 && fields[0] == "MemAvailable:" {
			kib, err := strconv.ParseUint(fields[1], 10, 50)
			return farm.Bytes(kib) * farm.KiB, err == nil
		}
	}
	return 0, false
}
