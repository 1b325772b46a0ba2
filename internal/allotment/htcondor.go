package allotment

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

// HTCondor recognises jobs by the condor_starter above them. What the job was given is in two files that the starter
// wrote into the job's scratch directory as condor: .machine.ad is the slot, .job.ad the job. The directory is the
// user's, who can remove them or put others there, but can make none that condor owns. Those that condor made for other
// jobs of the user, in other slots or at other times, are told by their names of the slot, their times and their claims
// (HTCondor 23.9: baseStarter writes both before it starts the job).
func HTCondor(files fs.FS, p Process) (farm.Allotment, error) {
	slot, inGroup, err := p.condorGroup(files)
	if err != nil {
		return farm.Allotment{}, err
	}
	starter, ok := p.Daemon("condor_starter")
	switch {
	case !ok && !inGroup:
		return farm.Allotment{}, nil
	case !ok:
		return farm.Allotment{}, Strange("it is in a control group of HTCondor's " + slot +
			", and below no condor_starter")
	}
	own := starterSlot(starter.Argv)
	if own == "" {
		return farm.Allotment{}, Strange("its condor_starter names no slot")
	}
	if inGroup && slot != own {
		return farm.Allotment{}, Strange("its control group is of " + slot + " and its condor_starter of " + own)
	}
	ads, err := readCondorAds(files, p, starter, own)
	if err != nil {
		return farm.Allotment{}, err
	}
	a := farm.Allotment{System: farm.HTCondor, Job: ads.id()}
	cpus, ok := ads.machine.Int("Cpus")
	if !ok || cpus < 1 || cpus > 1<<20 {
		return farm.Allotment{}, Strange("its slot has " + ads.machine.Text("Cpus") + " CPUs")
	}
	a.Slots = int(cpus)
	mib, ok := ads.machine.Int("Memory")
	if !ok || mib < 1 || mib > 1<<40 {
		return farm.Allotment{}, Strange("its slot has " + ads.machine.Text("Memory") + " MB of memory")
	}
	a.Memory = farm.Bytes(mib) * farm.MiB
	a.Account, a.Ends = ads.account(), ads.ends()
	confined, limit, groups, err := p.Confined(files, func(at string) string { return condorPath(at).top })
	if err != nil {
		return farm.Allotment{}, err
	}
	a.CPUs, a.Cgroups = confined, groups
	if limit > 0 {
		a.Memory = min(a.Memory, limit)
	}
	return a, nil
}

// starterSlot is the name of the slot on a starter's command line: condor_starter -f -a slot1_1 SUBMIT-HOST.
func starterSlot(argv []string) string {
	for i, word := range argv {
		if (word == "-a" || word == "-slot-name") && i+1 < len(argv) && condorSlot.MatchString(argv[i+1]) {
			return argv[i+1]
		}
	}
	return ""
}

var condorSlot = lazyregexp.New(`^[A-Za-z][A-Za-z0-9]*(_\d+)*$`)

// condorPlace is a slot's control group: BASE_CGROUP/condor_var_lib_condor_execute_slot1_1@host, the first part being
// the execute directory.
type condorPlace struct{ top, slot string }

var condorGroups = lazyregexp.New(`^((?:/[^/]+)*?/condor_[^/]*_(slot\d+(?:_\d+)*)@[^/]+)(?:/.*)?$`)

func condorPath(at string) condorPlace {
	if m := condorGroups.FindStringSubmatch(at); m != nil && !strings.Contains(at, "/../") {
		return condorPlace{m[1], m[2]}
	}
	return condorPlace{}
}

// condorGroup is what the process's control groups say. The job's own group belongs to the job's user, who may make
// others in it; nobody but root can make one beside it.
func (p Process) condorGroup(files fs.FS) (slot string, found bool, err error) {
	for _, m := range p.Cgroups {
		at := condorPath(m.Path)
		if at.slot == "" {
			continue
		}
		dir := m.Dir(files, at.top)
		switch {
		case dir == "":
			return "", false, Hidden(at.top)
		case !RootsOwn(files, dir[:strings.LastIndexByte(dir, '/')]):
			return "", false, Strange("control group " + at.top +
				" is named as one of HTCondor's, and root alone could not have made it")
		case found && slot != at.slot:
			return "", false, Strange("its control groups are of " + slot + " and " + at.slot)
		}
		slot, found = at.slot, true
	}
	return slot, found, nil
}

type condorAds struct{ job, machine classad.Ad }

func readCondorAds(files fs.FS, p Process, starter Ancestor, slot string) (ads condorAds, err error) {
	born, err := Began(files, starter.PID)
	if err != nil {
		return ads, Strange("when its condor_starter began is not to be seen: " + err.Error())
	}
	trusted := condorUsers(files, p, starter)
	read := func(name string) (classad.Ad, error) {
		text, info, err := readForeign(files, fmt.Sprintf("proc/%d/cwd/%s", starter.PID, name),
			func(owner uint32) bool {
				return owner != p.UID && slices.Contains(trusted, owner)
			})
		if err != nil {
			return classad.Ad{}, Strange(err.Error())
		}
		// btime is of whole seconds, and moves with the clock by one.
		const slack = 2 * time.Second
		if info.ModTime().Before(born.Add(-slack)) {
			return classad.Ad{}, Strange(name + " is older than its condor_starter")
		}
		ad, err := classad.Parse(string(text))
		if err != nil {
			return classad.Ad{}, Strange(name + ": " + err.Error())
		}
		return ad, nil
	}
	if ads.machine, err = read(".machine.ad"); err != nil {
		return ads, err
	}
	if ads.job, err = read(".job.ad"); err != nil {
		return ads, err
	}
	// What is in a job's ad is the user's word, but for what the schedd puts there. One in the place of a slot's is
	// told by the latter.
	switch {
	case ads.machine.Has("Cmd") || ads.machine.Has("JobStatus") || ads.machine.Has("QDate"):
		return ads, Strange(".machine.ad is the ad of a job")
	case slotOf(ads.machine.String("Name")) != slot:
		return ads, Strange(fmt.Sprintf(".machine.ad is of slot %q, and its condor_starter of %q",
			ads.machine.String("Name"), slot))
	case ads.job.Has("RemoteHost") && slotOf(ads.job.String("RemoteHost")) != slot:
		return ads, Strange(fmt.Sprintf(".job.ad is of slot %q, and its condor_starter of %q",
			ads.job.String("RemoteHost"), slot))
	case ads.job.Text("PublicClaimId") != ads.machine.Text("PublicClaimId"):
		return ads, Strange(".job.ad and .machine.ad are of different claims")
	case ads.id() == "":
		return ads, Strange(".job.ad names no job")
	}
	return ads, nil
}

func slotOf(name string) string {
	slot, _, _ := strings.Cut(name, "@")
	return slot
}

// condorUsers are those that the daemons write files as: root, and whom CONDOR_IDS, or else the account condor, says.
func condorUsers(files fs.FS, p Process, starter Ancestor) []uint32 {
	users := []uint32{0}
	if passwd, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/root/etc/passwd", starter.PID)); err == nil {
		if id, ok := userID(passwd, "condor"); ok {
			users = append(users, id)
		}
	}
	// The master, other than startd and starter, never acts for a user.
	if master, ok := p.Daemon("condor_master"); ok {
		status, err := fs.ReadFile(files, fmt.Sprintf("proc/%d/status", master.PID))
		if _, after, found := strings.Cut(string(status), "\nUid:"); err == nil && found {
			if f := strings.Fields(after); len(f) > 1 {
				users = append(users, number(f[1]))
			}
		}
	}
	return users
}

// Began is when a process began, by the clock.
func Began(files fs.FS, pid int) (time.Time, error) {
	ticks, err := StartOf(files, pid)
	if err != nil {
		return time.Time{}, err
	}
	stat, err := fs.ReadFile(files, "proc/stat")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(line, "btime "); ok {
			boot, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			const tick = time.Second / 100 // USER_HZ is 100 on every Linux
			return time.Unix(boot, 0).Add(time.Duration(ticks) * tick), err
		}
	}
	return time.Time{}, fmt.Errorf("proc/stat has no btime")
}

// id is the job among those of all access points that send jobs here: GlobalJobId is "ACCESS-POINT#CLUSTER.PROC#TIME".
func (ads condorAds) id() string {
	id := ads.job.String("GlobalJobId")
	if i := strings.LastIndexByte(id, '#'); i > 0 {
		id = id[:i]
	}
	if !condorJob.MatchString(id) {
		return ""
	}
	return id
}

var condorJob = lazyregexp.New(`^[A-Za-z0-9@._:-]+#\d+\.\d+$`)

// account is the group whose share the negotiator counts, or else nothing: "physics.alice@site" of user alice@site is
// physics.
func (ads condorAds) account() string {
	group := slotOf(ads.machine.String("AccountingGroup"))
	user := slotOf(ads.machine.String("RemoteUser"))
	owner := ads.job.String("Owner")
	for _, name := range []string{user, owner} {
		if name == "" {
			continue
		}
		if group == name {
			return ""
		}
		if before, ok := strings.CutSuffix(group, "."+name); ok {
			return before
		}
	}
	return group
}

// ends is when HTCondor will end the job by what the job allows, or the startd by itself.
func (ads condorAds) ends() time.Time {
	var ends time.Time
	at := func(since classad.Ad, start string, of classad.Ad, length string) {
		from, ok := since.Int(start)
		seconds, ok2 := of.Int(length)
		if !ok || !ok2 || from <= 0 || seconds <= 0 || seconds >= 1<<31-1 { // the last is "for ever"
			return
		}
		if t := time.Unix(from+seconds, 0); ends.IsZero() || t.Before(ends) {
			ends = t
		}
	}
	at(ads.job, "JobCurrentStartDate", ads.job, "AllowedExecuteDuration")
	at(ads.job, "JobCurrentStartDate", ads.job, "AllowedJobDuration")
	at(ads.machine, "MyCurrentTime", ads.machine, "TimeToLive")
	return ends
}
