package tuning

import (
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/lazyregexp"
)

var plainWord = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./-]+$`)

// ShellWord is text as one word of a POSIX shell, quoted where it is not plain: names of VMs and files may hold
// anything, and people paste the commands that we tell them.
func ShellWord(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return farm.ShellWords(text)
}
