// Package lvm makes and removes logical volumes for disks of VMs. Whose a volume is says a tag of it, never its name
// alone: what has no tag of its owner is not touched.
package lvm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
	"github.com/grange-project/grange/internal/program"
)

// Codes of errors; docs/errors.md explains them.
const (
	CodeNoVolumes  farm.Code = "no-volumes"  // the host has no volume group, or no thin pool, for VMs
	CodeVolumeTool farm.Code = "volume-tool" // LVM refused, or did not answer
)

// tool is LVM's program, of which all its commands are parts.
const tool = "/sbin/lvm"

// timeout is for one command. LVM waits for its lock behind others, and for devices.
const timeout = time.Minute

// Tags of every volume of ours. Of whom it is, and of which VM, follows the equals sign.
const (
	tagOurs  = "grange"
	tagOwner = "grange.owner="
	tagVM    = "grange.vm="
)

// change are the options of what changes a group. LVM would copy the group's metadata below /etc/lvm before and after
// each change, and keep it for a month: thousands of files a day, in a directory where the agent may not write.
var change = []string{"--yes", "--quiet", "--quiet", "--autobackup", "n"}

// Place is where volumes are made.
type Place struct {
	Group string // volume group
	Pool  string // its thin pool; "": volumes are thick
}

func (p Place) String() string {
	if p.Pool == "" {
		return p.Group
	}
	return p.Group + "/" + p.Pool
}

// Volume is one volume of ours.
type Volume struct {
	Name, Group, Pool string
	Size              farm.Bytes
	Used              farm.Bytes // of its pool; all of it where it is thick
	Owner, VM         string
	Open              bool // somebody has it open
}

// Path is its device.
func (v Volume) Path() string { return "/dev/" + v.Group + "/" + v.Name }

// Place is where it lies.
func (v Volume) Place() Place { return Place{v.Group, v.Pool} }

// Space is what a place has.
type Space struct {
	Size, Free farm.Bytes
	Metadata   float64 // of a thin pool: how much of its metadata is used, in percent
}

// Report is what LVM says of a host: volumes of ours, and the places where there may be some.
type Report struct {
	Volumes []Volume
	Spaces  map[Place]Space
}

// LVM runs its commands. The zero value is ready.
type LVM struct {
	run func(ctx context.Context, args ...string) ([]byte, error) // nil: the host's program; tests have their own
}

// Create makes a volume of a VM's and returns it. Nobody has written to it, but a thick one has what its blocks had
// before. Errors: CodeVolumeTool, farm.CodeDiskFull.
func (l *LVM) Create(ctx context.Context, at Place, name string, size farm.Bytes, owner, vm string) (Volume, error) {
	v := Volume{Name: name, Group: at.Group, Pool: at.Pool, Size: size, Owner: owner, VM: vm}
	if err := check(at.Group, name, owner, vm); err != nil {
		return v, err
	}
	args := slices.Concat([]string{"lvcreate"}, change, []string{"--name", name, "--addtag", tagOurs, "--addtag",
		tagOwner + owner, "--addtag", tagVM + vm, "--setactivationskip", "n"})
	bytes := strconv.FormatUint(uint64(size), 10) + "b"
	if at.Pool != "" {
		args = append(args, "--virtualsize", bytes, "--thinpool", at.Pool, at.Group)
	} else {
		args = append(args, "--size", bytes, "--zero", "y", "--wipesignatures", "y", at.Group)
	}
	_, err := l.command(ctx, args...)
	return v, err
}

// Remove removes a volume of ours. One that is not there is no error; one of somebody else's, by its tags, is left.
func (l *LVM) Remove(ctx context.Context, v Volume) error {
	if err := check(v.Group, v.Name, v.Owner, v.VM); err != nil {
		return err
	}
	ours := fmt.Sprintf("lv_name=%s && lv_tags=%s && lv_tags=%s", v.Name, tagOurs, tagOwner+v.Owner)
	_, err := l.command(ctx, slices.Concat([]string{"lvremove"}, change, []string{"--select", ours, v.Group})...)
	return err
}

// Read asks LVM for all there is.
func (l *LVM) Read(ctx context.Context) (Report, error) {
	groups, err := l.command(ctx, "vgs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"vg_name,vg_size,vg_free")
	if err != nil {
		return Report{}, err
	}
	volumes, err := l.command(ctx, "lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"lv_name,vg_name,pool_lv,lv_size,lv_attr,lv_tags,data_percent,metadata_percent")
	if err != nil {
		return Report{}, err
	}
	return parse(groups, volumes)
}

// parse reads what vgs and lvs print.
func parse(groups, volumes []byte) (Report, error) {
	type row = map[string]string
	rows := func(text []byte, key string) (all []row, err error) {
		var out struct{ Report []map[string][]row }
		if err := json.Unmarshal(text, &out); err != nil {
			return nil, toolError("LVM's report cannot be read", err)
		}
		for _, part := range out.Report {
			all = append(all, part[key]...)
		}
		return all, nil
	}
	r := Report{Spaces: map[Place]Space{}}
	vgs, err := rows(groups, "vg")
	if err != nil {
		return r, err
	}
	for _, g := range vgs {
		r.Spaces[Place{Group: g["vg_name"]}] = Space{Size: size(g["vg_size"]), Free: size(g["vg_free"])}
	}
	lvs, err := rows(volumes, "lv")
	if err != nil {
		return r, err
	}
	for _, v := range lvs {
		all, used := size(v["lv_size"]), percent(v["data_percent"])
		if strings.HasPrefix(v["lv_attr"], "t") {
			s := Space{Size: all, Metadata: percent(v["metadata_percent"])}
			s.Free = all - min(all, part(all, used))
			r.Spaces[Place{v["vg_name"], v["lv_name"]}] = s
		}
		if mine, ok := ours(v["lv_tags"]); ok {
			mine.Name, mine.Group, mine.Pool, mine.Size, mine.Used = v["lv_name"], v["vg_name"], v["pool_lv"], all, all
			mine.Open = len(v["lv_attr"]) > 5 && v["lv_attr"][5] == 'o'
			if mine.Pool != "" {
				mine.Used = part(all, used)
			}
			r.Volumes = append(r.Volumes, mine)
		}
	}
	return r, nil
}

func part(all farm.Bytes, percent float64) farm.Bytes {
	return farm.Bytes(float64(all) * percent / 100)
}

func size(text string) farm.Bytes {
	n, _ := strconv.ParseUint(text, 10, 64)
	return farm.Bytes(n)
}

func percent(text string) float64 {
	p, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return min(max(p, 0), 100)
}

// ours reads a volume's tags.
func ours(tags string) (v Volume, ok bool) {
	for tag := range strings.SplitSeq(tags, ",") {
		switch {
		case tag == tagOurs:
			ok = true
		case strings.HasPrefix(tag, tagOwner):
			v.Owner = tag[len(tagOwner):]
		case strings.HasPrefix(tag, tagVM):
			v.VM = tag[len(tagVM):]
		}
	}
	return v, ok
}

// Has returns the error of a place that is not there.
func (r Report) Has(p Place) error {
	if _, ok := r.Spaces[p]; ok {
		return nil
	}
	what, how := "volume group", "vgcreate "+p.Group+" DEVICE"
	if p.Pool != "" {
		what, how = "thin pool", "lvcreate --type thin-pool -l 90%FREE -n "+p.Pool+" "+p.Group
	}
	return &farm.Error{Kind: farm.Unavailable, Code: CodeNoVolumes,
		Message: fmt.Sprintf("this host has no %s %s, which [areas] of the agent's configuration names", what, p),
		Hint:    "make it (`" + how + "`), or change [areas]"}
}

// valid is what may be a name of LVM's, and a word in a selection of it.
var valid = lazyregexp.New(`^[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,120}$`)

// ValidName reports whether a volume group or a thin pool may have that name.
func ValidName(name string) bool { return valid.MatchString(name) && name != "." && name != ".." }

func check(words ...string) error {
	for _, w := range words {
		if !ValidName(w) {
			return toolError(fmt.Sprintf("%q is not a name that LVM takes", w), nil)
		}
	}
	return nil
}

func (l *LVM) command(ctx context.Context, args ...string) ([]byte, error) {
	run := l.run
	if run == nil {
		run = host
	}
	out, err := run(ctx, args...)
	if err == nil || ctx.Err() != nil {
		return out, err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &farm.Error{Kind: farm.Unavailable, Code: CodeNoVolumes, Message: tool + " cannot be run",
			Hint: "install lvm2, or take the volume groups out of [areas] in the agent's configuration", Err: err}
	}
	if text := err.Error(); strings.Contains(text, "insufficient free space") ||
		strings.Contains(text, "Insufficient free space") || strings.Contains(text, "free space threshold") {
		return nil, &farm.Error{Kind: farm.NoCapacity, Code: farm.CodeDiskFull,
			Message: "the volume group of VMs is full", Hint: "free space there, or wait until other VMs have ended",
			Err: errors.Join(err, syscall.ENOSPC)}
	}
	return nil, toolError("LVM refuses", err)
}

func toolError(message string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeVolumeTool, Message: message,
		Hint: "see the agent's log; `lvs -a -o +lv_tags` shows what is there", Err: err}
}

// host runs LVM's program.
func host(ctx context.Context, args ...string) ([]byte, error) {
	out, err := program.Start(ctx, program.Call{Path: tool, Args: args, Limit: timeout,
		Env: []string{"LVM_SUPPRESS_FD_WARNINGS=1"}})
	if err != nil {
		return nil, fmt.Errorf("lvm %s: %w", args[0], err)
	}
	return out, nil
}
