! Fortran: reductions, intrinsics and complex numbers on the device.
program arrays
    use omp_lib
    implicit none
    integer, parameter :: n = 1000
    real(8) :: a(n), b(n), total
    complex(8) :: z(100)
    logical :: on_host
    integer :: i
    a = [(i, i = 1, n)]
    total = 0
    !$omp target map(from: on_host)
    on_host = omp_is_initial_device()
    !$omp end target
    !$omp target teams distribute parallel do map(to: a) map(from: b) reduction(+: total)
    do i = 1, n
        b(i) = 2 * sqrt(a(i)) + sin(a(i))
        total = total + b(i)
    end do
    !$omp target map(from: z)
    do i = 1, 100
        z(i) = exp(cmplx(0d0, real(i, 8), 8))
    end do
    !$omp end target
    if (.not. on_host .and. maxval(abs(b - 2 * sqrt(a) - sin(a))) < 1d-12 .and. abs(total - sum(b)) < 1d-8 .and. &
        maxval([(abs(z(i) - exp(cmplx(0d0, real(i, 8), 8))), i = 1, 100)]) < 1d-12) then
        print '(A)', 'PASS'
    else
        print '(A)', 'FAIL'
    end if
end program
