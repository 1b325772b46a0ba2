package htcondor

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/allotment"
	"github.com/grange-project/grange/internal/classad"
	"github.com/grange-project/grange/internal/farm"
)

// Codes of HTCondor's hooks; see docs/errors.md.
const (
	CodeBadWish farm.Code = "bad-wish"  // what a job's ad asks of grange makes no sense
	CodeNoMetal farm.Code = "no-metal"  // a job asks to run on the host itself, which the host does not allow
	CodeNoJobAd farm.Code = "no-job-ad" // the job's ad is missing, or may be the user's own
)

// Wish is what a job's ad asks of grange: +WantVM, +VMImage, +VMShape and +VMMounts in a submit file.
type Wish struct {
	VM     *bool // nil: it says nothing
	Image  string
	Shape  string
	Mounts []string // as `grange exec --bind` takes them
}

// describesVM reports whether the ad says more of a VM than whether there is to be one.
func (w Wish) describesVM() bool { return w.Image != "" || w.Shape != "" || len(w.Mounts) > 0 }

// WishOf reads a job's ad. What is there and cannot be understood is an error: a job that asks for something never gets
// something else.
func WishOf(ad classad.Ad) (Wish, error) {
	var w Wish
	if ad.Has("WantVM") {
		vm, ok := ad.Bool("WantVM")
		if !ok {
			return w, badWish("WantVM", ad)
		}
		w.VM = &vm
	}
	for name, to := range map[string]*string{"VMImage": &w.Image, "VMShape": &w.Shape} {
		if *to = ad.String(name); ad.Has(name) && (*to == "" || strings.HasPrefix(*to, "-")) {
			return w, badWish(name, ad)
		}
	}
	mounts := ad.String("VMMounts")
	if ad.Has("VMMounts") && mounts == "" {
		return w, badWish("VMMounts", ad)
	}
	for m := range strings.FieldsFuncSeq(mounts, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !strings.HasPrefix(m, "/") {
			return w, badWish("VMMounts", ad)
		}
		w.Mounts = append(w.Mounts, m)
	}
	return w, nil
}

func badWish(name string, ad classad.Ad) error {
	return &farm.Error{Kind: farm.Invalid, Code: CodeBadWish,
		Message: fmt.Sprintf("the job asks for %s = %.100s", name, ad.Text(name)),
		Hint:    `write for example: +WantVM = True   +VMImage = "sl9"   +VMShape = "large"   +VMMounts = "/data:/data:ro, /sw"`}
}

// Metal says which jobs run on the host itself.
type Metal string

// The ways.
const (
	MetalNever   Metal = "never"   // none
	MetalAsked   Metal = "asked"   // those with WantVM = False
	MetalDefault Metal = "default" // all but those with WantVM = True
)

// Metals are all of them.
var Metals = []Metal{MetalNever, MetalAsked, MetalDefault}

// OnMetal decides where a job runs. An error: nowhere on this host.
func (m Metal) OnMetal(w Wish) (bool, error) {
	switch {
	case m == MetalAsked:
		return w.VM != nil && !*w.VM, nil
	case m == MetalDefault && w.VM == nil && w.describesVM():
		return false, &farm.Error{Kind: farm.Invalid, Code: CodeBadWish,
			Message: "the job describes a virtual machine and asks for none, and this host runs such jobs on the host itself",
			Hint:    "add +WantVM = True, or leave out +VMImage, +VMShape and +VMMounts"}
	case m == MetalDefault:
		return w.VM == nil || !*w.VM, nil
	case w.VM != nil && !*w.VM:
		return false, &farm.Error{Kind: farm.Denied, Code: CodeNoMetal,
			Message: "the job asks for WantVM = False, and this host runs jobs in virtual machines only",
			Hint:    "leave WantVM out, or ask for hosts that allow it: requirements = GrangeMetal =!= \"never\""}
	}
	return false, nil
}

// ReadJobAd reads the ad that the starter wrote for the job that runs here. Its directory is the user's, another job of
// whom may have put another ad there meanwhile; what the ad says may send a job to metal, so it has to be this job's:
// written by another user (HTCondor), since the starter began, for this slot. starter is our parent, slot what it says
// in _CONDOR_SLOT.
func ReadJobAd(path, slot string, starter int) (classad.Ad, error) {
	ad, err := readJobAd(path, slot, starter)
	if err != nil {
		err = &farm.Error{Kind: farm.Denied, Code: CodeNoJobAd, Message: "the job's ad is not to be trusted",
			Err: err, Hint: "this program is HTCondor's USER_JOB_WRAPPER, and made to be started by condor_starter " +
				"alone"}
	}
	return ad, err
}

func readJobAd(path, slot string, starter int) (classad.Ad, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return classad.Ad{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return classad.Ad{}, err
	}
	began, err := allotment.Began(allotment.Host(), starter)
	if err != nil {
		return classad.Ad{}, err
	}
	const slack = 2 * time.Second // of the clock by which processes begin
	owner := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular() || owner.Nlink > 1:
		return classad.Ad{}, fmt.Errorf("%s is not an ordinary file with one name", path)
	case owner.Uid == uint32(os.Getuid()) && owner.Uid != 0, info.Mode().Perm()&0o022 != 0:
		return classad.Ad{}, fmt.Errorf("%s can be changed by the job's user", path)
	case info.ModTime().Before(began.Add(-slack)):
		return classad.Ad{}, fmt.Errorf("%s is older than the job", path)
	}
	const most = 4 << 20
	text, err := io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return classad.Ad{}, err
	}
	ad, err := classad.Parse(string(text))
	if err != nil {
		return ad, err
	}
	if at, _, _ := strings.Cut(ad.String("RemoteHost"), "@"); slot == "" || at != slot {
		return ad, fmt.Errorf("%s is of slot %q, and the job in %q", path, at, slot)
	}
	return ad, nil
}
