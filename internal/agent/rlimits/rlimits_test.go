package rlimits

import (
	"math"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/guest"
)

const limits = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              3600                 7200                 seconds   
Max file size             unlimited            unlimited            bytes     
Max core file size        0                    unlimited            bytes     
Max resident set          unlimited            unlimited            bytes     
Max open files            1024                 524288               files     
Max nice priority         0                    0                    
Max address space         odd                  unlimited            bytes     
Max locked
`

func TestOf(t *testing.T) {
	root := fstest.MapFS{"proc/7/limits": {Data: []byte(limits)}}
	want := []guest.Limit{{Resource: unix.RLIMIT_CPU, Soft: 3600, Hard: 7200},
		{Resource: unix.RLIMIT_FSIZE, Soft: math.MaxUint64, Hard: math.MaxUint64},
		{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: math.MaxUint64},
		{Resource: unix.RLIMIT_RSS, Soft: math.MaxUint64, Hard: math.MaxUint64},
		{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 524288}, {Resource: unix.RLIMIT_NICE}}
	if got := Of(root, 7); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	if got := Of(root, 8); len(got) != 0 {
		t.Errorf("of no process: %+v", got)
	}
	// this kernel's file has all of them
	if got := Of(os.DirFS("/"), os.Getpid()); len(got) != len(numbers) {
		t.Errorf("%+v", got)
	}
}

func TestWithin(t *testing.T) {
	has := []guest.Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 4096, Hard: 4096},
		{Resource: unix.RLIMIT_CPU, Soft: 3600, Hard: 7200}}
	got := Within(has, []api.Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 4096},
		{Resource: unix.RLIMIT_CPU, Soft: math.MaxUint64, Hard: math.MaxUint64}, {Resource: unix.RLIMIT_CORE}})
	want := []guest.Limit{{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 4096},
		{Resource: unix.RLIMIT_CPU, Soft: 7200, Hard: 7200}, {Resource: unix.RLIMIT_CORE}}
	if !slices.Equal(got, want) || has[0].Soft != 4096 {
		t.Errorf("%+v", got)
	}
}
