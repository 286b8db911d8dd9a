// A 32-bit program without a C library: pause(2) for ever.
void _start(void)
{
	for (;;)
		__asm__ volatile("int $0x80" : : "a"(29) : "memory");
}
