package rlimits

import (
	"math"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

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
	for _, coreFiles := range []bool{true, false} {
		want := []guest.Limit{{Resource: unix.RLIMIT_CPU, Soft: 3600, Hard: 7200},
			{Resource: unix.RLIMIT_FSIZE, Soft: math.MaxUint64, Hard: math.MaxUint64},
			{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: math.MaxUint64},
			{Resource: unix.RLIMIT_NOFILE, Soft: 1024, Hard: 524288}}
		if !coreFiles {
			want = append(slices.Delete(want, 2, 3), guest.Limit{Resource: unix.RLIMIT_CORE})
		}
		if got := Of(root, 7, coreFiles); !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
	}
	if got := Of(root, 8, false); len(got) != 1 || got[0] != (guest.Limit{Resource: unix.RLIMIT_CORE}) {
		t.Errorf("of no process: %+v", got)
	}
	// this kernel's file has all that is carried
	if got := Of(os.DirFS("/"), os.Getpid(), true); len(got) != len(carried) {
		t.Errorf("%+v", got)
	}
}
