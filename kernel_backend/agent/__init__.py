"""Run an agent: a process under a user's Unix account, through which the service works on the files and jobs there."""
