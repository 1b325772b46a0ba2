// Command grange runs jobs in virtual machines made for them: the agent of a host, and its command line.
package main

import (
	"os"

	"github.com/grange-project/grange/internal/cli"
)

func main() { os.Exit(cli.Main(cli.Called(os.Args[0], os.Args[1:], os.Getenv))) }
