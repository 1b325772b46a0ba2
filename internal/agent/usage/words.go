package usage

import (
	"errors"
	"fmt"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
)

// exited notes how a job in a VM ended, and what grange-guest says that it used. Of several the first that failed
// counts.
func exited(u *api.Usage, e api.Exit) {
	if cpu := e.User.Seconds() + e.System.Seconds(); e.User >= 0 && e.System >= 0 {
		if u.JobCPU != nil {
			cpu += *u.JobCPU
		}
		u.JobCPU = &cpu
	}
	if used := uint64(max(e.MaxRSS, 0)); u.Memory == 0 || used <= u.Memory>>10 {
		u.JobMemory = max(u.JobMemory, used<<10)
	}
	u.Tasks++
	const good = "exit:0"
	if u.Ended != "" && u.Ended != good {
		return
	}
	u.Ended = fmt.Sprintf("exit:%d", e.Code)
	if e.Signal != 0 {
		u.Ended = fmt.Sprintf("signal:%d", e.Signal)
	}
}

// Failed notes why a VM or a job in it came to nothing, unless its job has said how it ended.
func Failed(u *api.Usage, err error) {
	if u.Ended != "" {
		return
	}
	u.Ended = string(farm.CodeInternal)
	if own := new(farm.Error); errors.As(err, &own) {
		u.Ended = string(own.Code)
	}
}
