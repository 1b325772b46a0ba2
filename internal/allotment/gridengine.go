package allotment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/grange-project/grange/internal/farm"
)

// GridEngine recognises jobs by the sge_shepherd above them, or by their group. The shepherd's working directory is the
// job's active_jobs/JOB.TASK, where sge_execd wrote what the job was given, for the shepherd alone: not even the job's
// environment has all of it. There are no control groups; Grid Engine finds a job's processes by one more group that it
// gives each of them, and limits their memory by that.
func GridEngine(files fs.FS, p Process) (farm.Allotment, error) {
	if shepherd, ok := p.Daemon(shepherdProgram); ok {
		return jobOfShepherd(files, p, shepherd.PID)
	}
	shepherd, err := shepherdOfGroups(files, p)
	if err != nil || shepherd == 0 {
		return farm.Allotment{}, err
	}
	return jobOfShepherd(files, p, shepherd)
}

const shepherdProgram = "sge_shepherd"

// shepherdOfGroups finds the job of a process that left its shepherd's tree, as a daemon does, by the group that Grid
// Engine tracks it by: only root can give a process that group, and only root can take it away. 0: it is in no job's
// group. Numbers of groups are used again; a process that was left behind by an earlier job must not get what a later
// one was given.
func shepherdOfGroups(files fs.FS, p Process) (int, error) {
	if len(p.Groups) == 0 {
		return 0, nil
	}
	all, err := processes(files)
	if err != nil {
		return 0, err
	}
	found := 0
	for _, pid := range all {
		exe := fmt.Sprintf("proc/%d/exe", pid)
		if link, err := fs.ReadLink(files, exe); err != nil ||
			path.Base(strings.TrimSuffix(link, " (deleted)")) != shepherdProgram {
			continue
		}
		s, err := readStatus(files, pid)
		if err != nil || s.UID != 0 {
			continue
		}
		if info, err := fs.Stat(files, exe); err != nil || info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			continue
		}
		cwd, err := fs.ReadLink(files, fmt.Sprintf("proc/%d/cwd", pid))
		if err != nil {
			continue // it has just ended
		}
		dir := strings.TrimPrefix(path.Clean(cwd), "/")
		c, err := readShepherd(files, dir+"/config")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, noShepherd(err.Error()) // it might be that one
		}
		if group := c["add_grp_id"]; group == "" || group == "0" || !slices.Contains(p.Groups, number(group)) {
			continue
		}
		if found != 0 {
			return 0, Strange("it is in the groups by which Grid Engine tracks several jobs")
		}
		found = pid
		if err := leftTree(files, p, pid, dir); err != nil {
			return 0, err
		}
	}
	return found, nil
}

// leftTree reports that a process in a job's group is of this job's user, and began under its shepherd.
func leftTree(files fs.FS, p Process, shepherd int, dir string) error {
	text, err := fs.ReadFile(files, dir+"/job_pid")
	if err != nil {
		return noShepherd(err.Error())
	}
	first, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return noShepherd(err.Error())
	}
	s, err := readStatus(files, first)
	if err != nil || s.parent != shepherd {
		return Strange("it is in a group by which Grid Engine tracks a job that has ended")
	}
	if s.UID != p.UID {
		return Strange("it is in a group by which Grid Engine tracks a job of another user")
	}
	begun, err := StartOf(files, first)
	if err != nil {
		return err
	}
	born, err := StartOf(files, p.PID)
	if err != nil {
		return err
	}
	if born < begun {
		return Strange("it is older than the job in whose group it is")
	}
	return nil
}

// jobOfShepherd reads what the shepherd was told of its job.
func jobOfShepherd(files fs.FS, p Process, shepherd int) (farm.Allotment, error) {
	cwd, err := fs.ReadLink(files, fmt.Sprintf("proc/%d/cwd", shepherd))
	if err != nil {
		return farm.Allotment{}, noShepherd("its working directory is not to be seen: " + err.Error())
	}
	dir := strings.TrimPrefix(path.Clean(cwd), "/")
	if err := notTheUsers(files, dir, p.UID); err != nil {
		return farm.Allotment{}, err
	}
	c, err := readShepherd(files, dir+"/config")
	if err != nil {
		return farm.Allotment{}, noShepherd(err.Error())
	}
	a := farm.Allotment{System: farm.GridEngine, Job: c["job_id"], Queue: c["queue"], Slots: 1}
	task := c["ja_task_id"]
	if task == "" || task == "0" {
		task = "1" // in names of directories: a job that is no array
	} else {
		a.Job += "." + task
	}
	if place := "/active_jobs/" + c["job_id"] + "." + task; c["job_id"] == "" || !strings.HasSuffix("/"+dir, place) &&
		!strings.Contains("/"+dir, place+"/") {
		return farm.Allotment{}, noShepherd("its configuration, in " + dir + ", is of job " + a.Job)
	}
	if task := c["pe_task_id"]; !none(task) {
		a.Step = task
	}
	if n, err := strconv.Atoi(c["host_slots"]); err == nil && n > 0 {
		a.Slots = n
	}
	if a.Memory, err = gridEngineMemory(c, a.Slots); err != nil {
		return farm.Allotment{}, noShepherd(err.Error())
	}
	for _, key := range []string{"acct_project", "account"} {
		// sge is what stands there when nobody said anything
		if v := c[key]; a.Account == "" && !none(v) && v != "sge" {
			a.Account = v
		}
	}
	if text := c["add_grp_id"]; text != "" && text != "0" {
		group := number(text)
		if !slices.Contains(p.Groups, group) {
			return farm.Allotment{},
				Strange(fmt.Sprintf("it is not in group %s, by which Grid Engine tracks job %s", text, a.Job))
		}
		a.Group = group
	}
	return a, nil
}

// notTheUsers reports that only Grid Engine, and not the job's user, can have written what is in the directory.
func notTheUsers(files fs.FS, dir string, user uint32) error {
	for _, name := range []string{dir, dir + "/config"} {
		info, err := fs.Stat(files, name)
		if err != nil {
			return noShepherd(err.Error())
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		if !ok || owner.Uid != 0 && owner.Uid == user || info.Mode().Perm()&0o022 != 0 {
			return Strange("the job's user may write " + name)
		}
	}
	return nil
}

// readShepherd reads what a shepherd was told: key=value, one a line. Paths and arguments that the user chose stand
// among the others, with the line ends that he put there: a key that comes twice cannot be believed.
func readShepherd(files fs.FS, name string) (map[string]string, error) {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, err
	}
	c := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := c[key]; twice {
			return nil, fmt.Errorf("%s comes twice in its configuration", key)
		}
		if ok {
			c[key] = value
		}
	}
	return c, nil
}

// gridEngineMemory is the least of the limits that bound what a job uses: per slot, but for a resource that is reserved
// once per job. 0: none. HeldMemory stands in for h_vmem where `grange gridengine shepherd` took that away from the
// wrapper.
func gridEngineMemory(c map[string]string, slots int) (farm.Bytes, error) {
	var least farm.Bytes
	for _, key := range []string{"h_vmem", "h_rss", HeldMemory} {
		limit, err := GridEngineSize(c[key])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", key, err)
		}
		once := c[key+"_is_consumable_job"] == "1" || key == HeldMemory && c["h_vmem_is_consumable_job"] == "1" ||
			key == "h_rss"
		if !once {
			limit *= farm.Bytes(slots)
		}
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least, nil
}

// HeldMemory is the key under which a shepherd's configuration keeps the job's h_vmem when the process that starts the
// VM must not be bound by it.
const HeldMemory = "grange_h_vmem"

// GridEngineSize reads a memory_specifier of sge_types(5): a number with a multiplier, k, m, g and t of 1000, K, M, G
// and T of
// 1024. 0: no limit.
func GridEngineSize(text string) (farm.Bytes, error) {
	if none(text) || strings.EqualFold(text, "infinity") {
		return 0, nil
	}
	unit := 1.0
	if i := strings.IndexByte("kmgtKMGT", text[len(text)-1]); i >= 0 {
		unit = math.Pow([]float64{1000, 1024}[i/4], float64(i%4+1))
		text = text[:len(text)-1]
	}
	n, err := strconv.ParseFloat(text, 64)
	if v := n * unit; err == nil && v >= 0 && v < 1<<60 {
		return farm.Bytes(v), nil
	}
	return 0, fmt.Errorf("invalid memory size %q", text)
}

func none(text string) bool {
	return text == "" || strings.EqualFold(text, "none") || strings.EqualFold(text, "undefined")
}

func noShepherd(what string) error {
	return Strange("cannot determine what Grid Engine gave the job: " + what)
}
