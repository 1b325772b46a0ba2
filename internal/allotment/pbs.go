package allotment

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// PBS recognises jobs by the pbs_mom above them. Which job it is, only grange's hook tells: it runs as root in the
// process that becomes the job, and writes a record named by that process's ID, which all processes of the job descend
// from. Control groups are there where the site uses PBS's own cgroup hook.
func PBS(files fs.FS, p Process) (farm.Allotment, error) {
	i := p.DaemonAt("pbs_mom")
	if i < 0 {
		return farm.Allotment{}, nil
	}
	top := p.PID // what mom started
	if i > 0 {
		top = p.Ancestors[i-1].PID
	}
	r, err := readPBS(files, top)
	if err != nil {
		return farm.Allotment{}, err
	}
	a := farm.Allotment{System: farm.PBS, Job: r.Job, Slots: r.CPUs, Account: r.Account, Queue: r.Queue}
	if r.CPUs < 0 || r.Memory < 0 || r.Job == "" || strings.ContainsAny(r.Job, "/ \n") {
		return farm.Allotment{}, noHook("its record makes no sense")
	}
	for _, m := range p.Cgroups {
		at := pbsPath.FindStringSubmatch(m.Path)
		if at == nil {
			continue
		}
		dir := m.Dir(files, at[1])
		switch {
		case dir == "":
			return farm.Allotment{}, Hidden(at[1])
		case !RootsOwn(files, dir):
			return farm.Allotment{},
				Strange("control group " + at[1] +
					" is named as one of PBS's, and root alone could not have made it")
		case at[2] != r.Job:
			return farm.Allotment{},
				Strange("its control groups are of job " + at[2] + " and the hook's record of job " + r.Job)
		}
	}
	a.CPUs, a.Memory, a.Cgroups, err = p.Confined(files, func(at string) string {
		if m := pbsPath.FindStringSubmatch(at); m != nil {
			return m[1]
		}
		return ""
	})
	if limit := farm.Bytes(r.Memory); a.Memory == 0 || limit > 0 && limit < a.Memory {
		a.Memory = limit
	}
	if r.Walltime > 0 {
		began, err := startTime(files, r.Start)
		if err != nil {
			return farm.Allotment{}, err
		}
		a.Ends = began.Add(time.Duration(r.Walltime) * time.Second)
	}
	return a, err
}

// pbsPath is a group of PBS's cgroup hook: PREFIX.service/jobid/JOB, or in older ones PREFIX/JOB; pbs_jobs is the
// prefix that it comes with.
var pbsPath = lazyregexp.New(`^(/(?:pbs_jobs|pbspro)(?:\.service/jobid|\.slice)?/([^/]+))(?:/.*)?$`)

// pbsRecords is where the hook writes. Root's alone.
const pbsRecords = "run/grange/pbs"

// pbsRecord is what launch.py writes.
type pbsRecord struct {
	Job      string `json:"job"`
	Start    uint64 `json:"start"` // of the process: its number may have been another's before
	Queue    string `json:"queue"`
	Account  string `json:"account"`
	CPUs     int    `json:"cpus"`
	Memory   int64  `json:"memory"`
	Walltime int64  `json:"walltime"`
}

func readPBS(files fs.FS, top int) (pbsRecord, error) {
	var r pbsRecord
	name := path.Join(pbsRecords, fmt.Sprint(top))
	for _, at := range []string{pbsRecords, name} {
		info, err := fs.Stat(files, at)
		if err != nil {
			return r, noHook("the hook left no record of process " + fmt.Sprint(top))
		}
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || owner.Uid != 0 || info.Mode().Perm()&0o022 != 0 {
			return r, Strange("others than root may write " + at)
		}
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, noHook(name + ": " + err.Error())
	}
	start, err := StartOf(files, top)
	if err != nil {
		return r, err
	}
	if start != r.Start {
		return r, noHook(name + " is of an earlier process of this number")
	}
	return r, nil
}

func noHook(what string) error {
	return &farm.Error{Kind: farm.Denied, Code: CodeStrangeJob,
		Message: "a process below pbs_mom, and no telling of which job: " + what,
		Hint:    "is grange's hook enabled for execjob_launch? qmgr -c 'list hook grange'"}
}

// startTime is when a process began that started so many clock ticks after boot.
func startTime(files fs.FS, ticks uint64) (time.Time, error) {
	text, err := fs.ReadFile(files, "proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	const perSecond = 100 // USER_HZ of every Linux that Go runs on
	for line := range strings.Lines(string(text)) {
		var boot int64
		if n, _ := fmt.Sscanf(line, "btime %d", &boot); n == 1 {
			return time.Unix(boot, 0).Add(time.Duration(ticks) * time.Second / perSecond), nil
		}
	}
	return time.Time{}, fmt.Errorf("proc/stat has no btime")
}
